/** Before each test file: unmount components, and wait patiently, since machines are busy. */

import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

configure({ asyncUtilTimeout: 10_000 });
afterEach(cleanup);
