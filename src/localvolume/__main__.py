"""`python -m localvolume` is the command `localvolume`."""

import sys

from localvolume.cli.main import main

sys.exit(main())
