# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""get FILE SECTION OPTION | set FILE SECTION OPTION VALUE | delete ..."""

import configparser
import sys

verb, path, section, option, *value = sys.argv[1:]
parser = configparser.ConfigParser(
    interpolation=None, strict=False, default_section='')
parser.optionxform = str
parser.read(path)
if verb == 'get':
    print(parser.get(section, option, fallback=''))
else:
    if verb == 'set':
        if not parser.has_section(section):
            parser.add_section(section)
        parser.set(section, option, *value)
    elif parser.has_section(section):
        parser.remove_option(section, option)
    with open(path, 'w') as file:
        parser.write(file)
