/** Requests to the server. A refusal is an error with its code and message. */

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly fields: Record<string, string> = {}, // messages by the path of a field of the request
  ) {
    super(message);
  }

  /** True if a retry may succeed: no connection, the server starts, or it is overloaded. */
  get passes(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** The address of a path of the server, which may be mounted below another path. */
export const serverUrl = (path: string): string => new URL(".", location.href).pathname.replace(/\/$/, "") + path;

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
    response = await fetch(serverUrl(path), init);
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "offline", "The server cannot be reached. Check that it is running, then try again.");
  }
  if (!response.ok) throw await readError(response);
  return response;
}

const PATIENCE_MS = 60_000; // reads that take longer have failed

/** Send a request and parse its JSON; an empty body is undefined. */
export async function call<T>(method: string, path: string, options: Options = {}): Promise<T> {
  const limit = method === "GET" ? { signal: AbortSignal.timeout(PATIENCE_MS) } : {};
  const response = await request(method, path, { ...limit, ...options });
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

async function readError(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as {
      error: { code: string; message: string; fields?: Record<string, string> };
    };
    return new ApiError(response.status, error.code, error.message, error.fields);
  } catch {
    const why =
      response.status >= 500
        ? "internal error, see the server log"
        : "not a response of wick; check for a proxy in between";
    return new ApiError(
      response.status,
      "error",
      `The server returned status ${response.status}: ${why}. Try again later.`,
    );
  }
}

/** Build a path with escaped parts. */
export function buildPath(parts: TemplateStringsArray, ...values: string[]): string {
  return parts.reduce((made, part, at) => made + encodeURIComponent(values[at - 1] ?? "") + part);
}

export function buildQuery(fields: Record<string, string | number | boolean | undefined | null>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given.map(([key, value]) => [key, String(value)]))}` : "";
}
