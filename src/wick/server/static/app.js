// A page to talk to agents on: sign in, choose one, say something, see what it does, answer what it asks.
// Whatever comes from a model or a tool is put into the page as text, never as HTML.

const find = (id) => document.getElementById(id)
const state = { agent: '', thread: '', run: '', last: '', lines: new Map(), open: null }

// -- talking to the server --------------------------------------------------------------------------------------

async function ask(method, path, body) {
  const headers = body === undefined ? {} : { 'Content-Type': 'application/json' }
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) })
  if (answer.ok) return answer.status === 204 ? null : answer.json()
  throw await failure(answer)
}

async function failure(answer) {
  const body = await answer.json().catch(() => null)
  return Object.assign(new Error(body?.error?.message ?? `the server answered ${answer.status}`), { status: answer.status })
}

// Each frame of a stream of events: {id, event, data}.
async function* frames(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { value, done } = await reader.read()
    if (done) return
    text += value
    const parts = text.split('\n\n')
    text = parts.pop()
    for (const part of parts) {
      const frame = parsed(part)
      if (frame.data !== undefined) yield frame
    }
  }
}

function parsed(part) {
  const frame = { id: '', event: 'message', data: undefined }
  for (const line of part.split('\n')) {
    const colon = line.indexOf(':')
    if (colon < 1) continue
    const [name, value] = [line.slice(0, colon), line.slice(colon + 1).trimStart()]
    if (name === 'data') frame.data = JSON.parse(value)
    else frame[name] = value
  }
  return frame
}

// -- what is shown ----------------------------------------------------------------------------------------------

function line(kind, text = '') {
  const item = document.createElement('li')
  item.className = kind
  item.textContent = text
  find('log').append(item)
  item.scrollIntoView({ block: 'end' })
  return item
}

function toolLine(name, args) {
  const item = line('tool')
  const head = document.createElement('div')
  head.textContent = `${name} ${JSON.stringify(args)}`.slice(0, 2000)
  const output = document.createElement('pre')
  item.append(head, output)
  return item
}

function button(label, act) {
  const made = document.createElement('button')
  made.type = 'button'
  made.textContent = label
  made.addEventListener('click', act)
  return made
}

function question(data) {
  const item = line('question')
  const words = document.createElement('p')
  words.textContent = data.question
  const answer = (choice) => async () => {
    for (const each of item.querySelectorAll('button')) each.disabled = true
    await ask('POST', `/approvals/${encodeURIComponent(data.id)}`, { choice, thread_id: state.thread }).catch(told)
    if (find('stop').hidden) await goOn()
  }
  item.append(words, button('Allow', answer('allow')), button('Deny', answer('deny')))
  state.lines.set(`question ${data.id}`, item)
}

function told(error) {
  line('note', error.message)
  if (error.status === 401) signedOut()
}

const shows = {
  on_chat_model_stream({ data }) {
    if (data.kind && data.kind !== 'text') return
    state.open ??= line('assistant')
    state.open.textContent += data.delta
    state.open.scrollIntoView({ block: 'end' })
  },
  on_chat_model_restart({ data }) {
    state.open ??= line('assistant')
    state.open.textContent = data?.content ?? ''
  },
  on_chat_model_end({ data }) {
    const text = texts(data.message.content)
    if (text) (state.open ?? line('assistant')).textContent = text
    state.open = null
  },
  on_tool_start({ name, data }) {
    if (!state.lines.has(data.call_id)) state.lines.set(data.call_id, toolLine(name, data.args))
  },
  on_tool_stream({ data }) {
    const output = state.lines.get(data.call_id)?.querySelector('pre')
    if (output) output.textContent = (output.textContent + data.delta).slice(-20000)
  },
  on_tool_end({ name, data }) {
    if (!state.lines.has(data.call_id)) state.lines.set(data.call_id, toolLine(name, {}))
    state.lines.get(data.call_id).querySelector('pre').textContent = (data.error || data.output || '').slice(0, 20000)
  },
  on_approval_request({ data }) {
    if (!state.lines.has(`question ${data.id}`)) question(data)
  },
  on_approval_response({ data }) {
    const item = state.lines.get(`question ${data.id}`)
    for (const each of item?.querySelectorAll('button') ?? []) each.remove()
    if (item) item.append(data.allowed ? 'allowed' : `denied ${data.reason ?? ''}`)
  },
  resync() {
    state.open?.remove()
    state.open = null
  },
  error({ data }) {
    line('note', data?.message ?? data?.error?.message ?? 'the run failed')
  },
}

function texts(content) {
  if (typeof content === 'string') return content
  return (content ?? []).filter((part) => part.type === 'text').map((part) => part.text).join('')
}

// -- runs -------------------------------------------------------------------------------------------------------

async function say(words) {
  line('user', words)
  busy(true)
  const body = { messages: [{ role: 'user', content: words }], ...(state.thread && { thread_id: state.thread }) }
  const headers = { 'Content-Type': 'application/json', 'Idempotency-Key': crypto.randomUUID?.() ?? `${Math.random()}` }
  try {
    await watch(await fetch(`/agents/${encodeURIComponent(state.agent)}/stream`, {
      method: 'POST', headers, body: JSON.stringify(body),
    }))
  } catch (error) {
    told(error)
  }
  busy(false)
}

// Follow a stream to its end; where the connection breaks, go on after the last frame that was seen.
async function watch(answer) {
  if (!answer.ok) throw await failure(answer)
  state.run = answer.headers.get('X-Run-Id') ?? state.run
  state.thread = answer.headers.get('X-Thread-Id') ?? state.thread
  for (let tries = 0; tries < 10; tries++) {
    try {
      for await (const frame of frames(answer)) {
        tries = 0
        if (take(frame)) return
      }
    } catch { /* it is taken up again below */ }
    await new Promise((wake) => setTimeout(wake, 300 * (tries + 1)))
    answer = await resumed().catch(() => answer)
    if (answer.status === 204) return
  }
}

// A run that had paused for an answer goes on under its own id.
async function goOn() {
  const { run, last } = state
  busy(true)
  Object.assign(state, { run, last })
  await watch(await resumed()).catch(told)
  busy(false)
}

function resumed() {
  const headers = state.last ? { 'Last-Event-ID': state.last } : {}
  return fetch(`/runs/${encodeURIComponent(state.run)}/events`, { headers })
}

function take(frame) {
  if (frame.id) state.last = frame.id
  const event = frame.data ?? {}
  shows[frame.event]?.(event)
  return frame.event === 'done' || frame.event === 'error'
}

function busy(is) {
  find('send').hidden = is
  find('stop').hidden = !is
  if (is) Object.assign(state, { run: '', last: '', open: null })
}

// -- signing in -------------------------------------------------------------------------------------------------

async function begin() {
  const ticket = new URLSearchParams(location.hash.slice(1)).get('ticket')
  if (ticket) {
    history.replaceState(null, '', location.pathname)
    await ask('POST', '/auth/session', { ticket }).catch((error) => { find('trouble').textContent = error.message })
  }
  await ask('GET', '/auth/me').then(signedIn, signedOut)
}

async function signedIn(me) {
  find('who').textContent = `${me.username} (${me.role})`
  const { agents } = await ask('GET', '/agents/')
  find('agents').replaceChildren(...agents.map((agent) => new Option(agent.name, agent.agent_id)))
  state.agent = agents.some((agent) => agent.agent_id === 'default') ? 'default' : agents[0]?.agent_id ?? ''
  find('agents').value = state.agent
  for (const id of ['sign-in']) find(id).hidden = true
  for (const id of ['talk', 'out']) find(id).hidden = false
  for (const id of ['agents', 'new']) find(id).disabled = false
  find('words').focus()
}

function signedOut() {
  find('sign-in').hidden = false
  find('talk').hidden = find('out').hidden = true
  find('who').textContent = ''
}

function fresh() {
  Object.assign(state, { thread: '', run: '', last: '', open: null })
  state.lines.clear()
  find('log').replaceChildren()
}

find('sign-in').addEventListener('submit', async (event) => {
  event.preventDefault()
  find('trouble').textContent = ''
  const token = find('token').value.trim()
  find('token').value = ''
  await ask('POST', '/auth/session', { token }).then(signedIn, (error) => { find('trouble').textContent = error.message })
})
find('say').addEventListener('submit', (event) => {
  event.preventDefault()
  const words = find('words').value.trim()
  if (!words || !find('stop').hidden) return
  find('words').value = ''
  say(words)
})
find('words').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault()
    find('say').requestSubmit()
  }
})
find('stop').addEventListener('click', () => state.run && ask('POST', `/runs/${encodeURIComponent(state.run)}/cancel`).catch(told))
find('new').addEventListener('click', fresh)
find('agents').addEventListener('change', () => { state.agent = find('agents').value; fresh() })
find('out').addEventListener('click', async () => { await ask('DELETE', '/auth/session').catch(() => null); fresh(); signedOut() })
addEventListener('hashchange', begin)
addEventListener('unhandledrejection', (event) => told(event.reason))
begin()
