"""``python -m longtail`` is the same program as ``longtail``."""

import sys

from longtail.cli import main

sys.exit(main())
