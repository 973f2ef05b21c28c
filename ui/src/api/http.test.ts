import { afterEach, describe, expect, it, vi } from "vitest";

import { ApiError, call, buildPath, buildQuery } from "./http";

afterEach(() => vi.unstubAllGlobals());

describe("a request", () => {
  it("that is refused is an error with the server's words", async () => {
    const said = { error: { code: "not_found", message: "there is no such thread" } };
    vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify(said), { status: 404 })));
    await expect(call("GET", "/threads/x")).rejects.toMatchObject({
      status: 404,
      code: "not_found",
      message: said.error.message,
    });
  });

  it("without a server fails with an ApiError", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("failed")));
    await expect(call("GET", "/")).rejects.toBeInstanceOf(ApiError);
  });

  it("has its parts escaped", () => {
    expect(buildPath`/threads/${"a/b c"}/fork`).toBe("/threads/a%2Fb%20c/fork");
    expect(buildQuery({ path: "a&b", empty: "", none: undefined, n: 0 })).toBe("?path=a%26b&n=0");
  });
});
