// Drives RealtimeSession of @openai/agents, unmodified, in a page, over WebRTC or over a WebSocket.
//
// `check(name, base)` and `checkSocket(base)` give what was seen; judging that is left to the caller.

import {
  OpenAIRealtimeWebRTC,
  OpenAIRealtimeWebSocket,
  RealtimeAgent,
  RealtimeSession,
  tool,
} from '/sdk/openai-realtime-agents.mjs';

import { all, answered, diaryOf, ephemeralKey, last, seen, shown } from './diary.mjs';

const used = [];
const weather = tool({
  name: 'get_weather',
  description: 'What the weather is like in a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
  execute: async (given) => {
    used.push(given);
    return 'four degrees';
  },
});

async function stopped(diary) {
  await seen(diary, 'output_audio_buffer.cleared');
  diary.session.sendMessage('[[echo:Still here.]]');
  await answered(diary, 2);
  await seen(diary, 'output_audio_buffer.stopped');
}

const checks = {
  async text_turn({ session }, diary) {
    session.sendMessage('Hello');
    await answered(diary, 1);
    await seen(diary, 'output_audio_buffer.stopped');
    const { instructions } = last(diary, 'session.updated').session;
    return { instructions, deltas: all(diary, 'response.output_audio.delta').length };
  },

  async tool_call({ session }, diary) {
    session.sendMessage('What is the weather like?');
    await answered(diary, 2);
    return { used };
  },

  async voice_turn(_, diary) {
    await answered(diary, 1);
    await seen(diary, 'conversation.item.retrieved');
    await seen(diary, 'output_audio_buffer.stopped');
    return {};
  },

  async barge_in({ session }, diary) {
    session.sendMessage('[[long]]');
    await seen(diary, 'conversation.item.truncated');
    await answered(diary, 2);
    await seen(diary, 'conversation.item.retrieved', 2);
    const { audio_end_ms } = last(diary, 'conversation.item.truncated');
    return { audio_end_ms, cleared: all(diary, 'output_audio_buffer.cleared').length };
  },

  // While the answer is still being made, or else again: scripted engines are quick.
  async stop_button({ session }, diary) {
    session.sendMessage(`[[echo:${'I go on and on. '.repeat(550)}]]`);
    await seen(diary, 'output_audio_buffer.started');
    session.interrupt();
    await stopped(diary);
    const statuses = all(diary, 'response.done').map(({ response }) => response.status);
    return { statuses, again: statuses[0] === 'completed' };
  },

  // The first thing that the microphone hears is said meanwhile, the second after that.
  async muted({ session }, diary, silentS) {
    const over = new Promise((resolve) => setTimeout(resolve, silentS * 1000));
    session.mute(true);
    session.sendMessage('Hello');
    await answered(diary, 1);
    await seen(diary, 'output_audio_buffer.stopped');
    session.sendMessage('What is the weather like?');
    await answered(diary, 3);
    await over;
    const heard = all(diary, 'input_audio_buffer.speech_started').length;
    session.mute(false);
    await answered(diary, 4);
    await seen(diary, 'conversation.item.retrieved');
    await seen(diary, 'output_audio_buffer.stopped', 3);
    return { heard, then: all(diary, 'input_audio_buffer.speech_started').length };
  },

  async reconnection({ session, connect }, diary) {
    const histories = [];
    for (const turn of [1, 2]) {
      if (turn === 2) await connect();
      session.sendMessage(`[[echo:Turn ${turn}.]]`);
      await answered(diary, turn);
      await seen(diary, 'output_audio_buffer.stopped', turn);
      histories.push(shown(diary));
      if (turn === 1) session.close();
    }
    const ids = all(diary, 'session.created').map(({ session: { id } }) => id);
    return { histories, sessions: new Set(ids).size };
  },

  // When all of the answer has been made, and little of it heard.
  async late_stop_button({ session }, diary) {
    session.sendMessage('[[long]]');
    await answered(diary, 1);
    await seen(diary, 'output_audio_buffer.started');
    session.interrupt();
    await stopped(diary);
    return { statuses: all(diary, 'response.done').map(({ response }) => response.status) };
  },
};

const helper = () => new RealtimeAgent({ name: 'Helper', instructions: 'Be brief.', tools: [weather] });

async function run(name, base, ...given) {
  window.takeHeard();
  const audioElement = document.querySelector('audio');
  const session = new RealtimeSession(helper(), { transport: new OpenAIRealtimeWebRTC({ audioElement }) });
  const diary = diaryOf(session);
  const apiKey = await ephemeralKey(base);
  const connect = () => session.connect({ apiKey, url: `${base}/v1/realtime/calls` });
  const began = performance.now();
  await connect();
  const connecting = (performance.now() - began) / 1000;
  const found = await checks[name]({ session, connect }, diary, ...given);
  const { errors, answers } = diary;
  const { callId } = session.transport;
  const playing = !audioElement.paused && audioElement.srcObject?.active === true;
  const history = shown(diary);
  session.close();
  return { history, errors, answers, callId, connecting, playing, ...found };
}

window.check = async (name, base, ...given) => {
  let found = await run(name, base, ...given);
  for (let tries = 1; found.again && tries < 6; tries++) found = await run(name, base);
  return found;
};

window.checkSocket = async (base) => {
  const session = new RealtimeSession(helper(), { transport: new OpenAIRealtimeWebSocket() });
  const diary = diaryOf(session);
  await session.connect({
    apiKey: await ephemeralKey(base),
    url: `${base.replace(/^http/, 'ws')}/v1/realtime?model=gpt-realtime`,
  });
  session.sendMessage('What is the weather like?');
  await answered(diary, 2);
  const { errors, answers, samples } = diary;
  const history = shown(diary);
  session.close();
  return { history, errors, answers, samples, used };
};
