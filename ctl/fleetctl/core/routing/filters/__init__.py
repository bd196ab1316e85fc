"""One file for each optional filter: which candidates a request should rather go to. None left: the filter is ignored."""
