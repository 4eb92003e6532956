# SPDX-License-Identifier: Apache-2.0

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
