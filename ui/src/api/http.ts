/** Requests to the server. What it refuses is an error with its code and its sentence. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }

  /** Whether it may be otherwise in a moment: there is no connection, the server starts, or has too much to do. */
  get passes(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export interface Options {
  body?: unknown;
  raw?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** A request; its answer whatever it is, as long as it is not an error. */
export async function request(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  const init: RequestInit = { method, headers, credentials: "same-origin" };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(options.body);
  } else if (options.raw !== undefined) {
    init.body = options.raw;
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", "The server cannot be reached. Check that it is running, then try again.");
  }
  if (!response.ok) throw await refused(response);
  return response;
}

const PATIENCE_MS = 60_000; // what only reads and takes longer does not come any more

/** A request whose answer is JSON; an empty one is nothing. */
export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const limit = method === "GET" ? { signal: AbortSignal.timeout(PATIENCE_MS) } : {};
  const response = await request(method, path, { ...limit, ...options });
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

async function refused(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: { code: string; message: string } };
    return new ApiError(response.status, error.code, error.message);
  } catch {
    const why = response.status >= 500 ? "internal error, see the server log" : "not a response of wick; check for a proxy in between";
    return new ApiError(response.status, "error", `The server returned status ${response.status}: ${why}. Try again later.`);
  }
}

/** A path with its parts as they may stand in one. */
export function path(parts: TemplateStringsArray, ...values: string[]): string {
  return parts.reduce((made, part, at) => made + encodeURIComponent(values[at - 1] ?? "") + part);
}

export function query(fields: Record<string, string | number | boolean | undefined | null>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : "";
}
