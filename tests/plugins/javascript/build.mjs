// Makes a component of a plugin: SOURCE WIT WORLD OUT. Nothing of WASI is left in it: a plugin is given none.

import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [sourcePath, witPath, worldName, out] = process.argv.slice(2);
const disableFeatures = ['stdio', 'random', 'clocks', 'http', 'fetch-event'];
const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures });
await writeFile(out, component);
