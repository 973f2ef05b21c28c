/** Before each file of tests: what is drawn is taken away again, and waiting is patient, since machines are busy. */

import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

configure({ asyncUtilTimeout: 10_000 });
afterEach(cleanup);
