// Drives RealtimeSession of @openai/agents, unmodified, over its WebSocket transport.
//
//   node checks.mjs http://127.0.0.1:8080
//
// Prints one line of JSON for each check: its name and what was seen. Judging that is left to the caller.

import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents/realtime';
import { z } from 'zod';

const PATIENCE_MS = 15_000;
const RATE = 24_000;
const [base] = process.argv.slice(2);

const used = [];
const weather = tool({
  name: 'get_weather',
  description: 'What the weather is like in a city.',
  parameters: z.object({ city: z.string() }),
  execute: async (given) => {
    used.push(given);
    return 'four degrees';
  },
});

async function ephemeralKey() {
  const response = await fetch(`${base}/v1/realtime/client_secrets`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer anything' },
    body: JSON.stringify({ session: { type: 'realtime' } }),
  });
  return (await response.json()).value;
}

// A session, and a diary of it: server events, errors, samples heard, answers.
function opened(agent, config = {}, options = {}) {
  const session = new RealtimeSession(agent, { transport: 'websocket', config, ...options });
  const diary = { session, events: [], errors: [], samples: 0, answers: [], interrupted: 0, waiting: [] };
  const wake = () => diary.waiting.splice(0).forEach((resume) => resume());
  session.on('transport_event', (event) => {
    diary.events.push(event);
    queueMicrotask(wake);
  });
  session.on('error', ({ error }) => diary.errors.push(error?.error ?? String(error)));
  session.on('audio', ({ data }) => (diary.samples += data.byteLength / 2));
  session.on('agent_end', (_context, _agent, text) => diary.answers.push(text));
  session.on('audio_interrupted', () => (diary.interrupted += 1));
  session.on('history_updated', wake);
  return diary;
}

async function until(diary, what, holds) {
  const late = Date.now() + PATIENCE_MS;
  while (!holds()) {
    if (Date.now() > late) {
      const last = diary.events.slice(-12).map(({ type }) => type);
      throw new Error(`no ${what}; errors: ${JSON.stringify(diary.errors)}; last events: ${last}`);
    }
    await new Promise((resolve) => {
      diary.waiting.push(resolve);
      setTimeout(resolve, 200);
    });
  }
}

const count = (diary, type) => diary.events.filter((event) => event.type === type).length;
const answered = (diary, number) => until(diary, 'answer', () => diary.answers.length >= number);
const connect = (diary, apiKey) =>
  diary.session.connect({ apiKey, url: `${base.replace(/^http/, 'ws')}/v1/realtime?model=gpt-realtime` });

// The history as a page would show it.
const shown = ({ session }) =>
  session.history.map((item) =>
    item.type === 'function_call'
      ? { called: item.name, with: item.arguments, gave: item.output, status: item.status }
      : {
          role: item.role,
          status: item.status,
          said: item.content.map((part) => part.text ?? part.transcript).join(' '),
          kind: item.content.map((part) => part.type).join(' '),
        },
  );

// A square wave, which scripted engines take for speech, then silence, in packets of 100 ms.
function speak({ session }, ms, quietMs = 0) {
  const sound = new Int16Array(((ms + quietMs) * RATE) / 1000);
  for (let n = 0; n < (ms * RATE) / 1000; n++) sound[n] = Math.floor(n / 30) % 2 ? 9000 : -9000;
  for (let start = 0; start < sound.length; start += 2400)
    session.sendAudio(sound.slice(start, start + 2400).buffer);
}

const helper = () => new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.', tools: [weather] });

const checks = {
  async text_turn(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('Hello');
    await answered(diary, 1);
    const updated = diary.events.findLast(({ type }) => type === 'session.updated');
    return { diary, instructions: updated.session.instructions, tools: updated.session.tools.map(({ name }) => name) };
  },

  async written_answer(key) {
    const diary = opened(helper(), { outputModalities: ['text'] });
    await connect(diary, key);
    diary.session.sendMessage('Hello');
    await answered(diary, 1);
    return { diary };
  },

  async voice_turn(key) {
    const diary = opened(helper());
    await connect(diary, key);
    speak(diary, 600, 6000);
    await answered(diary, 1);
    await until(diary, 'retrieved item', () => count(diary, 'conversation.item.retrieved') > 0);
    return { diary };
  },

  async manual_turn(key) {
    const diary = opened(helper(), { audio: { input: { turnDetection: null } } });
    await connect(diary, key);
    speak(diary, 600);
    diary.session.transport.sendEvent({ type: 'input_audio_buffer.commit' });
    diary.session.transport.sendEvent({ type: 'response.create' });
    await answered(diary, 1);
    return { diary, started: count(diary, 'input_audio_buffer.speech_started') };
  },

  async tool_call(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('What is the weather like?');
    await answered(diary, 2);
    return { diary, used };
  },

  async handoff(key) {
    const other = new RealtimeAgent({ name: 'Meteorologist', instructions: 'Know the weather.' });
    const diary = opened(new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.', handoffs: [other] }));
    await connect(diary, key);
    diary.session.sendMessage('What is the weather like?');
    await answered(diary, 2);
    const updated = diary.events.findLast(({ type }) => type === 'session.updated');
    return { diary, agent: diary.session.currentAgent.name, instructions: updated.session.instructions };
  },

  async barge_in(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('[[long]]');
    await until(diary, 'sound', () => diary.samples > 0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    speak(diary, 600, 6000);
    await until(diary, 'truncation', () => count(diary, 'conversation.item.truncated') > 0);
    await answered(diary, 2);
    await until(diary, 'retrieved items', () => count(diary, 'conversation.item.retrieved') > 1);
    const { audio_end_ms } = diary.events.find(({ type }) => type === 'conversation.item.truncated');
    return { diary, audio_end_ms, interrupted: diary.interrupted };
  },

  async stop_button(key) {
    const diary = opened(helper());
    await connect(diary, key);
    const text = 'I go on and on. '.repeat(250);
    diary.session.sendMessage(`[[echo:${text}]]`);
    await until(diary, 'sound', () => diary.samples > 0);
    diary.session.interrupt();
    await answered(diary, 1);
    await until(diary, 'truncation', () => count(diary, 'conversation.item.truncated') > 0);
    diary.session.sendMessage('[[echo:Still here.]]');
    await answered(diary, 2);
    const { audio_end_ms } = diary.events.find(({ type }) => type === 'conversation.item.truncated');
    const statuses = diary.events.filter(({ type }) => type === 'response.done').map(({ response }) => response.status);
    return { diary, text, audio_end_ms, statuses, interrupted: diary.interrupted };
  },

  async guardrail(key) {
    const execute = async ({ agentOutput }) => ({ tripwireTriggered: agentOutput.includes('five'), outputInfo: {} });
    const diary = opened(helper(), {}, { outputGuardrails: [{ name: 'no numbers', execute }] });
    const tripped = [];
    diary.session.on('guardrail_tripped', (_context, _agent, { result }) => tripped.push(result.guardrail.name));
    await connect(diary, key);
    diary.session.sendMessage('[[long]]');
    await answered(diary, 2);
    return { diary, tripped };
  },

  async edited_history(key) {
    const diary = opened(helper(), { outputModalities: ['text'] });
    await connect(diary, key);
    diary.session.sendMessage('Forget this.');
    await answered(diary, 1);
    const [first, second] = diary.session.history;
    const content = [{ type: 'input_text', text: 'Remember that.' }];
    diary.session.updateHistory([{ ...first, content }, second]);
    await until(diary, 'edit', () => shown(diary)[0].said === 'Remember that.' && diary.session.history.length === 2);
    return { diary };
  },

  async reconnection(key) {
    const diary = opened(helper());
    const histories = [];
    for (const turn of [1, 2]) {
      await connect(diary, key);
      diary.session.sendMessage(`[[echo:Turn ${turn}.]]`);
      await answered(diary, turn);
      histories.push(shown(diary));
      diary.session.close();
    }
    const ids = diary.events.filter(({ type }) => type === 'session.created').map(({ session }) => session.id);
    return { diary, histories, sessions: new Set(ids).size, status: diary.session.transport.status };
  },
};

for (const [check, run] of Object.entries(checks)) {
  let line;
  try {
    const { diary, ...seen } = await run(await ephemeralKey());
    const { errors, samples, answers } = diary;
    line = { history: shown(diary), errors, samples, answers, ...seen };
    diary.session.close();
  } catch (error) {
    line = { failed: error.stack };
  }
  console.log(JSON.stringify({ check, ...line }));
}
