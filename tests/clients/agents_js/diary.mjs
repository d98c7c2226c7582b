// A diary of a RealtimeSession, in Node and in a page: server events, errors, answers, samples heard.

const PATIENCE_MS = 15_000;

export function diaryOf(session) {
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

export async function until(diary, what, holds) {
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

export const all = (diary, wanted) => diary.events.filter(({ type }) => type === wanted);
export const last = (diary, wanted) => diary.events.findLast(({ type }) => type === wanted);
export const seen = (diary, type, times = 1) => until(diary, type, () => all(diary, type).length >= times);
export const answered = (diary, times) => until(diary, 'answer', () => diary.answers.length >= times);

// The history as a page would show it.
export const shown = ({ session }) =>
  session.history.map((item) =>
    item.type === 'function_call'
      ? { called: item.name, with: item.arguments, gave: item.output, status: item.status }
      : item.type === 'mcp_call' // its status is that of an item.retrieved which the SDK asks for when it begins
      ? { called: item.name, with: item.arguments, gave: item.output }
      : item.type === 'mcp_approval_request'
      ? { asks: item.name, with: item.arguments }
      : {
          role: item.role,
          status: item.status,
          said: item.content.map((part) => part.text ?? part.transcript).join(' '),
          kind: item.content.map((part) => part.type).join(' '),
        },
  );

// A key such as a page gets from its own server.
export async function ephemeralKey(base) {
  const response = await fetch(`${base}/v1/realtime/client_secrets`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: 'Bearer anything' },
    body: JSON.stringify({ session: { type: 'realtime' } }),
  });
  return (await response.json()).value;
}
