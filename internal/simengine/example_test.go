package simengine_test

import (
	"fmt"
	"time"

	"github.com/stator-ai/stator/internal/simengine"
)

// The time is the caller's: here it is added up.
func Example() {
	e, err := simengine.New(simengine.Config{})
	if err != nil {
		panic(err)
	}
	e.Receive(&simengine.Request{ID: 1, Prompt: 1000, MaxOutput: 3})
	var now time.Duration
	for e.Busy() {
		p := e.Step()
		now += p.Duration
		fmt.Println(now, p.Outputs[0].Tokens, p.Outputs[0].Done)
	}
	// Output:
	// 36.561186ms 1 false
	// 41.016543ms 1 false
	// 45.471929ms 1 true
}
