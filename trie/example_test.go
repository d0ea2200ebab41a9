package trie_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/stator-ai/stator/trie"
)

// planAndAnswer is a run in which a planner thinks, a tool searches, and the planner
// answers.
func planAndAnswer(start float64) []trie.Step {
	planner := trie.Invocation{ID: "1", Name: "planner"}
	call := func(uuid string, from, to float64, tokens int) []trie.Step {
		from, to = start+from, start+to
		return []trie.Step{
			{Type: trie.LLMStart, Time: from, UUID: uuid, Function: planner},
			{Type: trie.LLMEnd, Time: to, Began: &from, UUID: uuid, Function: planner, OutputTokens: tokens},
		}
	}
	return append(call("a", 0, 1, 40), call("b", 3, 7, 600)...)
}

func ExampleBuilder() {
	weights := trie.DefaultWeights()
	b := trie.NewBuilder(trie.Options{WorkflowName: "support", Sensitivity: &weights})
	b.Add(planAndAnswer(1000))
	b.Add(planAndAnswer(2000))
	fmt.Println(b.Runs(), "runs,", b.Calls(), "calls")

	dir, err := os.MkdirTemp("", "trie")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "prediction_trie.json")
	if err := b.Build(time.Now()).Save(file); err != nil {
		log.Fatal(err)
	}

	t, err := trie.Load(file)
	if err != nil {
		log.Fatal(err)
	}
	if p, ok := t.Find([]string{"planner"}, 1); ok {
		fmt.Printf("%v more call, after %v ms; %v tokens now\n",
			p.RemainingCalls.Mean, p.InterArrivalMS.Mean, p.OutputTokens.P90)
	}
	// Output:
	// 2 runs, 4 calls
	// 1 more call, after 2000 ms; 40 tokens now
}

func ExampleTrie_Lookup() {
	b := trie.NewBuilder(trie.Options{})
	b.Add(planAndAnswer(0))
	t := b.Build(time.Now())

	for _, path := range [][]string{{"planner"}, {"planner", "search"}, {"chat"}} {
		m := t.Lookup(path, 2)
		fmt.Printf("%q: %v tokens, by %s %q\n", path, m.Prediction.OutputTokens.P50, m.Way, m.Path)
	}
	// Output:
	// ["planner"]: 600 tokens, by whole path ["planner"]
	// ["planner" "search"]: 600 tokens, by part of the path ["planner"]
	// ["chat"]: 600 tokens, by root []
}
