"""What holds for every test."""

from __future__ import annotations

import signal

# A job started in the background of a script inherits SIGINT ignored, and so would every process the tests start and
# then interrupt; a handler of ours is reset to the default when they are executed.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# So is SIGHUP under nohup, and a terminal that hangs up would end nobody.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
