/** Bars by day, split by user. */

import { useMemo } from "react";

import { Chart } from "../../canvas/Chart";
import type { Stacked } from "./sums";

export function Days({ data, show, label }: { data: Stacked; show: (amount: number) => string; label: string }) {
  const bars = useMemo(
    () => ({
      kind: "bar" as const,
      title: "",
      labels: data.days.map((day) => day.slice(5)),
      series: data.names.map((name, at) => ({ name, values: data.values.map((parts) => parts[at]!) })),
    }),
    [data],
  );
  const options = useMemo(() => ({ stacked: true, show }), [show]);
  return <Chart data={bars} label={label} options={options} />;
}
