"""The checked arguments come as JSON on standard input, and what is printed is the result. Exit 0 is success;
otherwise the model reads the end of standard error."""

import json
import sys

arguments = json.load(sys.stdin)
print(json.dumps({"words": len(arguments["text"].split())}))
