import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = normalize(join(dirname(fileURLToPath(import.meta.url)), '..', '..'));
const read = (path) => readFileSync(join(ROOT, path), 'utf8');
const html = read('index.html');
const modules = ['call', 'core', 'ui'].flatMap((folder) => readdirSync(join(ROOT, folder)).map((name) => `${folder}/${name}`));

/** Everything that main.js imports, directly or not. */
function imported(path, seen = new Set()) {
  for (const [, target] of read(path).matchAll(/^(?:import|export)[^'"]*from '(\.[^']+)'/gm)) {
    const next = normalize(join(dirname(path), target));
    if (!seen.has(next)) imported(next, seen.add(next));
  }
  return seen;
}

test('the page preloads exactly the modules that it imports', () => {
  const preloaded = [...html.matchAll(/modulepreload" href="([^"]+)"/g)].map(([, href]) => href);
  assert.deepEqual(preloaded.sort(), [...imported('main.js')].sort());
});

test('the page has no inline script, style or handler, and no absolute address', () => {
  assert.doesNotMatch(html, /\sstyle=|<style|\son[a-z]+=|<script(?![^>]*\ssrc=)/);
  assert.doesNotMatch(html, /(?:src|href)="(?:https?:|\/)/);
});

test('the core touches neither the page nor the clock', () => {
  for (const path of modules.filter((name) => name.startsWith('core/'))) {
    const code = read(path).replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, '');
    assert.doesNotMatch(code, /\b(document|window|navigator|localStorage|performance|setTimeout|fetch)\b/, path);
    assert.doesNotMatch(code, /Date\.now|new Date/, path);
  }
});

test('no file is longer than 300 lines', () => {
  for (const path of [...modules, 'main.js']) assert.ok(read(path).split('\n').length <= 301, path);
});
