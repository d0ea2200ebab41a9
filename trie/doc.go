// Package trie predicts what an agent does next. From the traces of finished runs it
// builds a trie of the functions on the way to each LLM call; at run time the agent looks
// up where it is and learns how many calls are still to come, how soon the next one will
// be, how long the answer is likely to be, and how much the run waits for it. Package hints
// sends these numbers along with the call, so that the fleet can plan with them.
//
// # The nouns
//
// A run is one execution of a workflow, recorded as [Step] values: the starts and the ends
// of functions, tools and LLM calls. The path of a call is the names of the functions it
// was made in, the workflow's entry first. Its index says the how manieth call it was in
// its invocation of the innermost function, from 1. A [Node] is a path, and a [Prediction]
// sums up calls made there or deeper: those with one index, or with any. Where full paths
// are filed, and a function both makes calls and calls others that do, its predictions by
// index are for its own calls alone: the second call of a function is not like the second
// of another that it called. The aggregate is over all of them.
//
// # For someone who builds an agent
//
// Record some runs, build, keep the file next to the agent, and look up before each call:
//
//	b := trie.NewBuilder(trie.Options{WorkflowName: "support"})
//	for _, run := range runs {
//		b.Add(run)
//	}
//	err := b.Build(time.Now()).Save("prediction_trie.json")
//
//	t, err := trie.Load("prediction_trie.json")
//	if p, ok := t.Find([]string{"<workflow>", "planner"}, 1); ok {
//		// p.RemainingCalls.Mean more calls, p.OutputTokens.P90 tokens at most, usually
//	}
//
// The command stator trie does the same with files.
//
// # What a lookup finds
//
// [Trie.Find] and [Trie.Lookup] try, in this order:
//
//  1. The whole path, walked from the root. It counts if every name is there. Of the nodes
//     on the way the deepest that predicts anything for the call wins, and within a node
//     the call's own index is better than the aggregate over all: a deep aggregate beats a
//     shallow index. A leading "root" may be in the path or not.
//  2. The end of the path. Tries that were built by pairs know a call by its function and
//     that function's caller alone, so the last two names are tried from the root; both
//     must be there. Such tries keep the calls of the entry function under a node "root"
//     below the root, and a path of one name is looked for there first of all, before it
//     is walked.
//  3. As much of the path as is there: the deepest node that predicts anything, which may
//     be the root, the aggregate over all calls.
//
// # Files
//
// The file format is that of NeMo Agent Toolkit's prediction_trie.json. [Trie.AppendJSON]
// writes the bytes that Python's json.dump with an indent of 2 would, so a file in that form
// is the same after it was read and written. Members that are not known are dropped, and a
// prediction without latency_sensitivity, as old files have them, gets one that is null. Half
// a surrogate pair in a name, which Python can write and UTF-8 cannot, becomes U+FFFD in all
// that is read here.
//
// # What holds
//
// Equal runs added in equal order build equal tries, byte for byte but for the time. Counts
// and means are exact; percentiles are exact up to [Options.MaxSamples] samples and come
// from a sample of that many beyond. No path is longer than [MaxDepth] names, and what a
// [Builder] builds has bounds in all other directions too. Metrics are finite numbers.
package trie
