"""What must not depend on where the tests run: Hypothesis' time limit per example, and whether Ctrl-C is heard."""

import signal

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell starts what runs in its background with SIGINT ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
