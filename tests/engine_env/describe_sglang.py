"""Runs `engine_kit/describe_parser.py` on SGLang's own parser where its kernels are not: DESCRIBE_PARSER.py OWN_PARSER.py.

Runs inside the engine environment with the unpacked wheel on PYTHONPATH.
"""

import importlib
import runpy
import sys

importlib.import_module("without_kernels").install()  # beside this file, in no package: it runs in the engines' Python
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
