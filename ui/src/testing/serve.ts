/** A test server: scripted responses and recorded requests. */

export interface RecordedRequest {
  method: string;
  path: string;
  body: unknown;
  headers: Record<string, string>;
}

type Answer = (request: RecordedRequest) => unknown;

/** Serve these routes (`"GET /threads"`) until `stop`; others are 404. A response that is an
 * array of texts is a stream, which breaks off at its end. */
export function serve(routes: Record<string, Answer>): { asked: RecordedRequest[]; stop: () => void } {
  const real = globalThis.fetch;
  const asked: RecordedRequest[] = [];
  globalThis.fetch = (input, init = {}) => {
    const path = input instanceof Request ? input.url : input.toString();
    const one = {
      method: init.method ?? "GET",
      path,
      body: typeof init.body === "string" ? (JSON.parse(init.body) as unknown) : undefined,
      headers: (init.headers ?? {}) as Record<string, string>,
    };
    asked.push(one);
    const answer = routes[`${one.method} ${path}`] ?? routes[`${one.method} ${path.split("?")[0]}`];
    return answer
      ? respond(answer, one)
      : Promise.resolve(
          Response.json({ error: { code: "not_found", message: `there is no ${path}` } }, { status: 404 }),
        );
  };
  return { asked, stop: () => void (globalThis.fetch = real) };
}

async function respond(answer: Answer, request: RecordedRequest): Promise<Response> {
  const result = await answer(request);
  if (result instanceof Response) return result;
  return Array.isArray(result) && result.every((one) => typeof one === "string")
    ? stream(result)
    : Response.json(result ?? null);
}

export function stream(texts: string[], run = "run_1", thread = "th_1"): Response {
  const body = new ReadableStream<Uint8Array>({
    start(to) {
      for (const text of texts) to.enqueue(new TextEncoder().encode(text));
      to.close();
    },
  });
  return new Response(body, { headers: { "X-Run-Id": run, "X-Thread-Id": thread } });
}

/** An event in wire format. */
export function frame(event: string, data: Record<string, unknown> = {}, id = "", run = "run_1"): string {
  return `${id ? `id: ${id}\n` : ""}event: ${event}\ndata: ${JSON.stringify({ event, run_id: run, data })}\n\n`;
}
