# SPDX-License-Identifier: Apache-2.0

"""How nova-compute finds and loads the driver.

Each test runs nova's own nova-compute in a process of its own, with our
package installed the way a deployment installs it, up to the point where the
driver is loaded.
"""
