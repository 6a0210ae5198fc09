// Facts to pictures: a file with a JSON list of facts, to one with a JSON list of SVG texts.
//
//     node notes/site/figures/render.mjs FACTS.json DRAWN.json
import { readFileSync, writeFileSync } from 'node:fs';
import { draws } from './kinds.mjs';

const [, , from, to] = process.argv;
const texts = JSON.parse(readFileSync(from, 'utf8')).map((facts) => draws[facts.kind](facts).file(facts.title));
writeFileSync(to, JSON.stringify(texts));
