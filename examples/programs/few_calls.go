// Lets a run use at most 20 tools. It is started once, so it can count.
//
//	go build -o .wick/hooks/few_calls few_calls.go
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

const most = 20

type call struct {
	ID  string `json:"id"`
	Run string `json:"run"`
}

type answer struct {
	ID       string `json:"id"`
	Decision string `json:"decision,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "hook" {
		fmt.Println(`{"points": ["guard_tool_use"], "protocol": "lines"}`)
		return
	}
	used := map[string]int{}
	lines, answers := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // the input has ended
		}
		var asked call
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) // an invalid call is not allowed: exit, so that wick blocks it
		}
		used[asked.Run]++
		said := answer{ID: asked.ID}
		if used[asked.Run] > most {
			said.Decision, said.Reason = "block", fmt.Sprintf("this run has used %d tools, which is enough", most)
		}
		if err := answers.Encode(said); err != nil {
			os.Exit(1)
		}
	}
}
