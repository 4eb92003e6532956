# SPDX-License-Identifier: Apache-2.0

"""What each module promises, by itself."""

import hypothesis

# The same examples in each run, and no opinion on the speed of the machine.
hypothesis.settings.load_profile('ci')
