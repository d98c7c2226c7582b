// Drives RealtimeSession of @openai/agents, unmodified, over its WebSocket transport.
//
//   node checks.mjs http://127.0.0.1:8080 http://127.0.0.1:8000/mcp
//
// Prints one line of JSON for each check: its name and what was seen. Judging that is left to the caller.

import { hostedMcpTool } from '@openai/agents';
import { RealtimeAgent, RealtimeSession, tool } from '@openai/agents/realtime';
import { z } from 'zod';

import { all, answered, diaryOf, ephemeralKey, last, seen, shown, until } from './diary.mjs';

const RATE = 24_000;
const [base, serverUrl] = process.argv.slice(2);

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

const opened = (agent, config = {}, options = {}) =>
  diaryOf(new RealtimeSession(agent, { transport: 'websocket', config, ...options }));
const connect = (diary, apiKey) =>
  diary.session.connect({ apiKey, url: `${base.replace(/^http/, 'ws')}/v1/realtime?model=gpt-realtime` });

// A square wave, which scripted engines take for speech, then silence, in packets of 100 ms.
function speak({ session }, ms, quietMs = 0) {
  const sound = new Int16Array(((ms + quietMs) * RATE) / 1000);
  for (let n = 0; n < (ms * RATE) / 1000; n++) sound[n] = Math.floor(n / 30) % 2 ? 9000 : -9000;
  for (let start = 0; start < sound.length; start += 2400)
    session.sendAudio(sound.slice(start, start + 2400).buffer);
}

const helper = () => new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.', tools: [weather] });

// An agent with the tools of a server, once the session has listed them.
async function equipped(key, options) {
  const hosted = hostedMcpTool({ serverLabel: 'weather', serverUrl, allowedTools: ['get_weather'], ...options });
  const diary = opened(new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.', tools: [hosted] }));
  diary.listed = [];
  diary.session.on('mcp_tools_changed', (tools) => (diary.listed = tools.map(({ name }) => name)));
  await connect(diary, key);
  await until(diary, 'tools', () => diary.listed.length > 0);
  return diary;
}

// A call that the user has to decide about.
async function decided(key, decide) {
  const diary = await equipped(key, { requireApproval: 'always' });
  const asked = [];
  diary.session.on('tool_approval_requested', (_context, _agent, { type, approvalItem }) => {
    asked.push(type);
    diary.session[decide](approvalItem);
  });
  diary.session.sendMessage('What is the weather like?');
  await answered(diary, 2);
  return { diary, asked, ended: all(diary, 'response.mcp_call.completed').length };
}

const checks = {
  async text_turn(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('Hello');
    await answered(diary, 1);
    const updated = last(diary, 'session.updated');
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
    await seen(diary, 'conversation.item.retrieved');
    return { diary };
  },

  async manual_turn(key) {
    const diary = opened(helper(), { audio: { input: { turnDetection: null } } });
    await connect(diary, key);
    speak(diary, 600);
    diary.session.transport.sendEvent({ type: 'input_audio_buffer.commit' });
    diary.session.transport.sendEvent({ type: 'response.create' });
    await answered(diary, 1);
    return { diary, started: all(diary, 'input_audio_buffer.speech_started').length };
  },

  async tool_call(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('What is the weather like?');
    await answered(diary, 2);
    return { diary, used };
  },

  async mcp_call(key) {
    const diary = await equipped(key, { authorization: 's3cret' });
    const completed = [];
    diary.session.on('mcp_tool_call_completed', (_context, _agent, { name, output }) => completed.push([name, output]));
    diary.session.sendMessage('What is the weather like?');
    await answered(diary, 2);
    const lists = all(diary, 'mcp_list_tools.completed').length;
    const known = diary.session.availableMcpTools.map(({ name }) => name);
    return { diary, completed, lists, known, listed: diary.listed, said: JSON.stringify(diary.events).includes('s3cret') };
  },

  async mcp_approved(key) {
    return decided(key, 'approve');
  },

  async mcp_refused(key) {
    return decided(key, 'reject');
  },

  async whole_history(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('Hello');
    await answered(diary, 1);
    diary.session.sendMessage('What is the weather like?');
    await answered(diary, 3);
    speak(diary, 600, 6000);
    await answered(diary, 4);
    await seen(diary, 'conversation.item.retrieved');
    const ids = diary.session.history.map(({ itemId }) => itemId);
    const added = all(diary, 'conversation.item.added').map(({ item }) => item.id);
    const results = all(diary, 'conversation.item.added').filter(({ item }) => item.type === 'function_call_output');
    return { diary, ids, added: added.filter((id) => !results.some(({ item }) => item.id === id)) };
  },

  async handoff(key) {
    const other = new RealtimeAgent({ name: 'Meteorologist', instructions: 'Know the weather.' });
    const diary = opened(new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.', handoffs: [other] }));
    await connect(diary, key);
    diary.session.sendMessage('What is the weather like?');
    await answered(diary, 2);
    const updated = last(diary, 'session.updated');
    return { diary, agent: diary.session.currentAgent.name, instructions: updated.session.instructions };
  },

  async barge_in(key) {
    const diary = opened(helper());
    await connect(diary, key);
    diary.session.sendMessage('[[long]]');
    await until(diary, 'sound', () => diary.samples > 0);
    await new Promise((resolve) => setTimeout(resolve, 300));
    speak(diary, 600, 6000);
    await seen(diary, 'conversation.item.truncated');
    await answered(diary, 2);
    await seen(diary, 'conversation.item.retrieved', 2);
    const { audio_end_ms } = last(diary, 'conversation.item.truncated');
    return { diary, audio_end_ms, interrupted: diary.interrupted };
  },

  // While the answer is still being made, or else again: scripted engines are quick.
  async stop_button(key) {
    const text = 'I go on and on. '.repeat(250);
    for (let tries = 1; ; tries++) {
      const diary = opened(helper());
      await connect(diary, key);
      diary.session.sendMessage(`[[echo:${text}]]`);
      await until(diary, 'sound', () => diary.samples > 0);
      diary.session.interrupt();
      await answered(diary, 1);
      await seen(diary, 'conversation.item.truncated');
      diary.session.sendMessage('[[echo:Still here.]]');
      await answered(diary, 2);
      const { audio_end_ms } = last(diary, 'conversation.item.truncated');
      const statuses = all(diary, 'response.done').map(({ response }) => response.status);
      if (statuses[0] !== 'completed' || tries === 6)
        return { diary, text, audio_end_ms, statuses, interrupted: diary.interrupted };
      diary.session.close();
    }
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
    const ids = all(diary, 'session.created').map(({ session }) => session.id);
    return { diary, histories, sessions: new Set(ids).size, status: diary.session.transport.status };
  },
};

for (const [check, run] of Object.entries(checks)) {
  let line;
  try {
    const { diary, ...found } = await run(await ephemeralKey(base));
    const { errors, samples, answers } = diary;
    line = { history: shown(diary), errors, samples, answers, ...found };
    diary.session.close();
  } catch (error) {
    line = { failed: error.stack };
  }
  console.log(JSON.stringify({ check, ...line }));
}
