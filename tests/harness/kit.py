"""Everything of the harness that the tests with sockets use, as one name.

A test file that needs many names of several harness modules imports `kit` instead of them.
"""

# ruff: noqa: F403

from tests.harness.api_server import *
from tests.harness.behaviours import *
from tests.harness.cases import *
from tests.harness.client import *
from tests.harness.control import *
from tests.harness.emulated import *
from tests.harness.messages import *
from tests.harness.ports import *
from tests.harness.process import *
from tests.harness.queueing import *
from tests.harness.reading import *
from tests.harness.replica import *
from tests.harness.running import *
