// Package hints tells a fleet of LLM engines what an agent is about to do. Wrap the
// agent's HTTP client once, and every call of a model says which calls share its prompt's
// beginning, how many will follow and how soon, how long the answer will be, and how much
// somebody waits for it. Stator, and Dynamo with its processor, place, order and keep by
// that.
//
//	client := openai.NewClient(
//		option.WithBaseURL("http://127.0.0.1:8000/v1"),
//		option.WithHTTPClient(&http.Client{Transport: hints.NewTransport(nil)}),
//	)
//
//	ctx = hints.WithRun(ctx, "")                  // once for each run of the agent
//	ctx = hints.EnterFunction(ctx, "planner")     // in each function that calls models
//	ctx = hints.WithLatencySensitivity(ctx, 5)    // a person is waiting
//	client.Chat.Completions.New(ctx, params)
//
// # What is sent
//
// [Transport] writes the hints to nvext.agent_hints and nvext.cache_control of a JSON body,
// and changes no other byte of it. What it says comes from, in this order: the context
// ([WithOutputTokens] and its like), a prediction for the place in the program from which
// the call is made ([WithLookup], package trie), and static values ([WithStatic]).
//
// # Scopes
//
// Where a call stands is on its [context.Context]: the run, the functions that it is made
// in, an override of its prefix id, how urgent it is. A context is never changed, so that
// scopes nest, end by themselves, and go along into goroutines.
//
// # It never hurts
//
// A request that cannot carry hints is sent as it is: one that is no JSON, compressed,
// signed, or not in memory. A hint that is out of bounds is moved into them; [Transport.Stats]
// counts both. Only [Closed] has such a call fail. Answers pass untouched. State is bounded:
// a transport knows [DefaultMaxPrefixes] prefixes at a time.
package hints
