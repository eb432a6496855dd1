#!/usr/bin/env python3
"""one_command_each.py COMMANDS FOLDER SOURCES: a compile_commands.json in FOLDER that holds one command of each source, the
last one, which for a source compiled many times is that of the highest level; SOURCES keeps those that have one."""
import json
import os
import sys

commands, folder, sources = sys.argv[1:]
with open(commands, encoding='utf-8') as file:
    entries = {os.path.realpath(os.path.join(e['directory'], e['file'])): e for e in json.load(file)}
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, 'compile_commands.json'), 'w', encoding='utf-8') as file:
    json.dump(list(entries.values()), file)
with open(sources, encoding='utf-8') as file:
    names = [name for name in file.read().split() if os.path.realpath(name) in entries]
with open(sources, 'w', encoding='utf-8') as file:
    file.write('\n'.join(names) + '\n')
