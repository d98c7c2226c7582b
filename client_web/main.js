/** Wires the state, the call and the views. */

import { VoiceAgentClient } from './call/client.js';
import { useKey } from './call/key.js';
import { LevelMeter } from './call/levels.js';
import { micObstacle } from './call/mic.js';
import { readConfig, readHealth, readKept } from './call/signalling.js';
import { Speaker } from './call/speaker.js';
import { browserOf, problem } from './core/problems.js';
import { deadline, initialState, reduce } from './core/reducer.js';
import { EventRing } from './core/redact.js';
import { runApp } from './ui/app.js';
import { composerView } from './ui/composer.js';
import { controlsView } from './ui/controls.js';
import { byId } from './ui/dom.js';
import { problemView } from './ui/problem-banner.js';
import { loadSettings, settingsView } from './ui/settings-drawer.js';
import { shortcuts } from './ui/shortcuts.js';
import { stageView } from './ui/stage.js';
import { createStore } from './ui/store.js';
import { transcriptView } from './ui/transcript.js';

/** How often the server is asked while it is not ready, ms. */
const HEALTH_MS = 4000;

const store = createStore(reduce, initialState(loadSettings()));
const log = new EventRing();
const meter = new LevelMeter();
const context = { browser: browserOf(navigator.userAgent), host: location.host };
const speaker = new Speaker(byId('speaker', HTMLAudioElement), (blocked) =>
  store.dispatch({ type: 'output', blocked, now: performance.now() }),
);

/** @type {ReturnType<typeof setTimeout>|undefined} */
let healthDue;

/** Ask the server how it is, and again and again until it is ready. */
async function watchHealth() {
  clearTimeout(healthDue);
  const [health] = await Promise.all([readHealth(), learnKept()]);
  store.dispatch({ type: 'health', health, now: performance.now() });
  clearTimeout(healthDue);
  if (health !== 'ready') healthDue = setTimeout(watchHealth, HEALTH_MS);
  return health;
}

const client = new VoiceAgentClient({
  dispatch: store.dispatch,
  state: store.get,
  speaker,
  meter,
  log,
  context,
  // Anew for each call: logins for TURN servers expire.
  iceServers: async () => {
    const [config] = await Promise.all([readConfig(), learnKept()]);
    return config.ice_servers;
  },
  health: watchHealth,
});

function toggleMute() {
  const { mic } = store.get();
  if (mic === 'live' || mic === 'muted') client.setMuted(mic === 'live');
}

function stopAnswer() {
  const { playing, activeResponse } = store.get();
  if (playing || activeResponse) client.stopAnswer();
}

/** @param {import('./core/types.js').ProblemAction} action */
function wayOut(action) {
  if (action === 'retry') void client.start(store.get().mode);
  if (action === 'text') void client.start('text').then(() => composer.focus());
  if (action === 'leave') client.hangUp();
  if (action === 'hear') client.tapToHear();
  if (action === 'dismiss') store.dispatch({ type: 'dismiss', now: performance.now() });
}

async function report() {
  const { phase, problem: now } = store.get();
  const events = log.list().slice(-20);
  const { version } = await readConfig();
  return JSON.stringify({ problem: now, phase, version, browser: navigator.userAgent, events, stats: await client.stats() }, null, 2);
}

const stage = stageView();
const composer = composerView({ onsend: (text) => client.sendText(text) });
const controls = controlsView({
  onstart: () => void client.start('voice'),
  onend: () => client.hangUp(),
  onmute: (muted) => client.setMuted(muted),
  onstop: stopAnswer,
  onhear: () => client.tapToHear(),
});
const views = [
  stage,
  controls,
  transcriptView(),
  settingsView({ onchange: (patch) => client.updateSettings(patch) }),
  problemView({ onaction: wayOut, onkey: useKey, report }),
];
shortcuts({
  enabled: () => store.get().settings.keys,
  onmute: toggleMute,
  onstop: stopAnswer,
  ontext: () => composer.focus(),
});
runApp({ state: store.get, subscribe: store.subscribe, views, stage, controls, meter });

// One timer for everything that time alone changes.
/** @type {ReturnType<typeof setTimeout>|undefined} */
let due;
store.subscribe((state) => {
  clearTimeout(due);
  const at = deadline(state);
  if (at === null) return;
  due = setTimeout(() => store.dispatch({ type: 'tick', now: performance.now() }), Math.max(0, at - performance.now()) + 1);
});

async function learnKept() {
  const kept = await readKept();
  if (kept) store.dispatch({ type: 'kept', kept, now: performance.now() });
}

const obstacle = 'RTCPeerConnection' in window ? micObstacle() : 'unsupported';
if (obstacle) store.dispatch({ type: 'block', problem: problem(obstacle, context), now: performance.now() });
void watchHealth();

/** Read-only, for tests and for whoever looks into a call. */
const inspector = Object.freeze({
  get events() {
    return log.list();
  },
  get state() {
    return store.get();
  },
  get stats() {
    return client.stats();
  },
});
Object.defineProperty(window, 'duologue', { value: inspector, enumerable: true });
