package kvfeed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stator-ai/stator/internal/kv"
)

var testSource = kv.Source{Worker: 7, Rank: 1}

// stored is a batch that stores one block named after its number.
func stored(epoch, seq uint64) *kv.Batch {
	return &kv.Batch{Source: testSource, Epoch: epoch, Seq: seq, Events: []kv.Event{{
		Kind: kv.Stored, Blocks: []kv.Block{{ID: kv.BlockID(100 * (seq + 1)), Tokens: kv.LocalHash(seq + 1)}},
	}}}
}

func cleared(epoch, seq uint64) *kv.Batch {
	return &kv.Batch{Source: testSource, Epoch: epoch, Seq: seq, Events: []kv.Event{{Kind: kv.Cleared}}}
}

// play runs a script against a feed and returns each line with what came of it.
// The lines are
//
//	start
//	batch SEQ[@EPOCH]…, cleared SEQ[@EPOCH], lost SEQ[@EPOCH]
//	events [SEQ[@EPOCH]…], gone [SEQ…]
//	dump [LAST[@EPOCH]], plaindump, brokendump, nodump
//	toonew NEWEST, fail, late
//
// where events to late answer the recovery under way, late with the ID of the one
// before. A dump holds nothing, except that plaindump does and has no watermark. A recovery is printed as "recover FROM" or "recover all" with its attempt
// and delay where they are not the first and none.
func play(t *testing.T, opt Options, script string) string {
	t.Helper()
	f := NewFeed(testSource, opt)
	var out strings.Builder
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var log []string
		do := func(acts []Action) {
			for i := 0; i < len(acts); i++ {
				a := acts[i]
				switch a.Do {
				case Clear:
					log = append(log, "clear")
				case Apply:
					log = append(log, fmt.Sprintf("apply %d", a.Batch.Seq))
				case Restore:
					log = append(log, "restore")
					var err error
					for _, e := range a.Dump.Dump {
						err = e
					}
					acts, i = f.Restored(err), -1
				case Recover:
					log = append(log, recovery(a.Recovery))
				}
			}
		}
		answer := func(a Answer) { do(f.Answer(f.Recovery(), a)) }
		args := words[1:]
		switch words[0] {
		case "start":
			do(f.Start())
		case "batch":
			for _, w := range args {
				do(f.Batch(at(t, w, stored)))
			}
		case "cleared":
			do(f.Batch(at(t, args[0], cleared)))
		case "lost":
			b := at(t, args[0], stored)
			do(f.Lost(b.Epoch, b.Seq))
		case "events", "gone":
			a := Answer{Kind: Events}
			if words[0] == "gone" {
				a.Kind = Gone
			}
			for _, w := range args {
				a.Batches = append(a.Batches, at(t, w, stored))
			}
			answer(a)
		case "dump":
			a := Answer{Kind: Dump, Dump: func(func(*kv.Event, error) bool) {}}
			if len(args) > 0 {
				b := at(t, args[0], stored)
				a.Epoch, a.Last, a.Known = b.Epoch, b.Seq, true
			}
			answer(a)
		case "plaindump":
			answer(Answer{Kind: Dump, Dump: func(yield func(*kv.Event, error) bool) { yield(&stored(0, 0).Events[0], nil) }})
		case "brokendump":
			answer(Answer{Kind: Dump, Last: 99, Known: true, Dump: func(yield func(*kv.Event, error) bool) {
				yield(nil, errors.New("connection lost"))
			}})
		case "nodump":
			answer(Answer{Kind: DumpFailed, Last: 99, Err: errors.New("out of memory")})
		case "toonew":
			answer(Answer{Kind: TooNew, Newest: at(t, args[0], stored).Seq})
		case "fail":
			answer(Answer{Err: errors.New("refused")})
		case "late":
			do(f.Answer(f.Recovery()-1, Answer{Kind: Dump, Last: 99, Known: true, Dump: func(func(*kv.Event, error) bool) {}}))
		default:
			t.Fatalf("script: unknown line %q", line)
		}
		if log == nil {
			log = []string{"-"}
		}
		fmt.Fprintf(&out, "%s: %s; %s\n", strings.Join(words, " "), strings.Join(log, ", "), f.State())
	}
	return out.String()
}

func recovery(r Recovery) string {
	s := fmt.Sprintf("recover %d", r.From)
	if r.Full {
		s = "recover all"
	}
	if r.Attempt > 1 {
		s += fmt.Sprintf(" #%d", r.Attempt)
	}
	if r.After > 0 {
		s += fmt.Sprintf(" after %v", r.After)
	}
	return s
}

func at(t *testing.T, word string, batch func(epoch, seq uint64) *kv.Batch) *kv.Batch {
	t.Helper()
	s, e, _ := strings.Cut(word, "@")
	seq, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	epoch, _ := strconv.ParseUint(e, 10, 64)
	return batch(epoch, seq)
}

var (
	engine    = Options{Ordered: true, Recoverable: true}
	broker    = Options{Recoverable: true}
	deaf      = Options{Ordered: true}
	impatient = Options{Recoverable: true, Attempts: 2, Buffer: 3}
)

func TestFeed(t *testing.T) {
	tests := []struct {
		name string
		opt  Options
		// want is a script with what has to come of each line.
		want string
	}{
		{"Sequence: 0,1,2,5 is a gap of 2, replayed from 3, then 0 is a restart", engine, `
			batch 0: clear, apply 0; live
			batch 1: apply 1; live
			batch 2: apply 2; live
			batch 5: recover 3; syncing
			events 3 4 5: apply 3, apply 4, apply 5; live
			batch 0: clear, apply 0; live
			batch 1: apply 1; live
		`},
		{"a source that can be asked is asked before it speaks", engine, `
			start: recover all; syncing
			dump 4: restore; live
			batch 5: apply 5; live
		`},
		{"first sight is held back and recovered", engine, `
			batch 8: recover all; syncing
			batch 9: -; syncing
			dump 8: restore, apply 9; live
		`},
		{"stale ids are ignored", broker, `
			batch 0 1 2: clear, apply 0, apply 1, apply 2; live
			batch 1: -; live
			batch 2: -; live
			batch 3: apply 3; live
		`},
		{"a dump replaces and what it knows is not applied again", broker, `
			batch 0: clear, apply 0; live
			batch 3 4 5 6: recover 1; syncing
			dump 4: restore, apply 5, apply 6; live
		`},
		{"what is held back is applied in order and once", broker, `
			batch 0: clear, apply 0; live
			batch 5 3 4 3 5: recover 1; syncing
			events 1 2: apply 1, apply 2, apply 3, apply 4, apply 5; live
		`},
		{"a hole that is left is recovered at the next id expected", broker, `
			batch 0: clear, apply 0; live
			batch 2 5: recover 1; syncing
			events 1: apply 1, apply 2, recover 3; syncing
			events 3 4: apply 3, apply 4, apply 5; live
		`},
		{"a hole in the answer ends it", broker, `
			batch 0: clear, apply 0; live
			batch 6: recover 1; syncing
			events 1 2 4 5: apply 1, apply 2, recover 3; syncing
			events 3 4 5 6: apply 3, apply 4, apply 5, apply 6; live
		`},
		{"the buffer is bounded and the hole is known", impatient, `
			batch 0: clear, apply 0; live
			batch 2 3 4 5: recover 1; syncing
			events 1: apply 1, recover 2; syncing
			events 2 3: apply 2, apply 3, apply 4, apply 5; live
		`},
		{"a new epoch resets the rank, drops the buffer and syncs again", broker, `
			batch 0@1: clear, apply 0; live
			batch 3@1 4@1: recover 1; syncing
			batch 2@2: clear, recover all; syncing
			late: -; syncing
			batch 5@1: -; syncing
			dump 1@2: restore, apply 2; live
		`},
		{"a new epoch that begins at its beginning", broker, `
			batch 0@1 1@1: clear, apply 0, apply 1; live
			batch 0@2: clear, apply 0; live
		`},
		{"an answer of an epoch that is over fails", broker, `
			batch 3@2: recover all; syncing
			dump 9@1: recover all #2 after 200ms; syncing
			events 0@1 1@1: recover all #3 after 400ms; syncing
			dump 3@2: restore; live
		`},
		{"a dump of an epoch that was not heard of yet", broker, `
			batch 0@1: clear, apply 0; live
			batch 4@1: recover 1; syncing
			dump 2@3: restore; live
			batch 5@1: -; live
			batch 3@3: apply 3; live
		`},
		{"batches of an epoch that was not heard of yet", broker, `
			batch 0@1: clear, apply 0; live
			batch 4@1: recover 1; syncing
			events 1@2 2@2: clear, recover all; syncing
			events 0@2 1@2: clear, apply 0, apply 1; live
		`},
		{"Cleared newer than the cursor supersedes a recovery", broker, `
			batch 0: clear, apply 0; live
			batch 3 6: recover 1; syncing
			cleared 5: apply 5, apply 6; live
			late: -; live
			batch 4: -; live
			batch 7: apply 7; live
		`},
		{"Cleared older than the cursor does not", broker, `
			batch 0 1: clear, apply 0, apply 1; live
			batch 3: recover 2; syncing
			cleared 1: -; syncing
			events 2: apply 2, apply 3; live
		`},
		{"Cleared after a gap needs no recovery", engine, `
			batch 0: clear, apply 0; live
			cleared 7: apply 7; live
		`},
		{"Cleared at first sight needs no recovery", engine, `
			start: recover all; syncing
			cleared 7: clear, apply 7; live
		`},
		{"a gap of a source that cannot be asked", deaf, `
			batch 0 1: clear, apply 0, apply 1; live
			batch 4: apply 4; dirty
			batch 5: apply 5; dirty
			cleared 6: apply 6; live
		`},
		{"the same, and the rank is cleared", Options{ClearOnGap: true}, `
			batch 0: clear, apply 0; live
			batch 4: clear, apply 4; dirty
		`},
		{"first sight of a source that cannot be asked", deaf, `
			batch 4: apply 4; dirty
			batch 5: apply 5; dirty
			batch 1: clear, apply 1; live
			batch 3: apply 3; dirty
		`},
		{"attempts 8, backoff 200 ms doubled, then the rank is cleared and goes on", broker, `
			batch 0: clear, apply 0; live
			batch 3 5: recover 1; syncing
			fail: recover 1 #2 after 200ms; syncing
			fail: recover 1 #3 after 400ms; syncing
			fail: recover 1 #4 after 800ms; syncing
			fail: recover 1 #5 after 1.6s; syncing
			fail: recover 1 #6 after 3.2s; syncing
			fail: recover 1 #7 after 6.4s; syncing
			fail: recover 1 #8 after 12.8s; syncing
			fail: clear, apply 3, apply 5, recover all after 30s; degraded
			batch 6: apply 6; degraded
		`},
		{"a degraded rank is healed while it goes on", impatient, `
			start: recover all; syncing
			fail: recover all #2 after 200ms; syncing
			fail: clear, recover all after 30s; degraded
			batch 7: apply 7; degraded
			batch 8: apply 8; degraded
			fail: recover all after 30s; degraded
			batch 9: apply 9; degraded
			dump 8: restore, apply 9; live
		`},
		{"a degraded rank is not cleared by another failure to heal it", impatient, `
			batch 7: recover all; syncing
			fail: recover all #2 after 200ms; syncing
			fail: clear, apply 7, recover all after 30s; degraded
			gone 6: -; degraded
			batch 8: apply 8; degraded
		`},
		{"a gap of a degraded rank", impatient, `
			batch 7: recover all; syncing
			fail: recover all #2 after 200ms; syncing
			fail: clear, apply 7, recover all after 30s; degraded
			batch 9: recover 8; syncing
			events 8: apply 8, apply 9, recover all after 30s; degraded
		`},
		{"an empty dump that failed is a failure", broker, `
			batch 0: clear, apply 0; live
			batch 3: recover 1; syncing
			nodump: recover 1 #2 after 200ms; syncing
			brokendump: restore, recover 1 #3 after 400ms; syncing
			events 1 2: apply 1, apply 2, apply 3; live
		`},
		{"an empty dump is an empty cache", broker, `
			batch 4: recover all; syncing
			dump 4: restore; live
		`},
		{"no batches where there must be some is a failure", broker, `
			batch 4: recover all; syncing
			events: recover all #2 after 200ms; syncing
			events 0 1 2 3: clear, apply 0, apply 1, apply 2, apply 3, apply 4; live
		`},
		{"a source that has said nothing yet", engine, `
			start: recover all; syncing
			events: clear; live
			batch 0: clear, apply 0; live
			batch 1: apply 1; live
		`},
		{"a dump of a source that has said nothing yet", engine, `
			start: recover all; syncing
			dump: restore, clear; live
			batch 1: recover all; syncing
			dump 1: restore; live
			batch 2: apply 2; live
		`},
		{"the first batches of a source that had said nothing are lost", engine, `
			start: recover all; syncing
			events: clear; live
			batch 5: recover all; syncing
			dump 4: restore, apply 5; live
		`},
		{"the second batch before the first", broker, `
			start: recover all; syncing
			events: clear; live
			batch 1: recover all; syncing
			batch 0: -; syncing
			events 0: clear, apply 0, apply 1; live
		`},
		{"a late first batch waits for the recovery", broker, `
			start: recover all; syncing
			batch 0: -; syncing
			dump 9: restore; live
		`},
		{"a late first batch does not end the healing", impatient, `
			start: recover all; syncing
			fail: recover all #2 after 200ms; syncing
			fail: clear, recover all after 30s; degraded
			batch 0: apply 0; degraded
			dump 9: restore; live
		`},
		{"a first batch in order needs no recovery", engine, `
			start: recover all; syncing
			batch 0: clear, apply 0; live
		`},
		{"a dump without a watermark", engine, `
			batch 6: recover all; syncing
			batch 7: -; syncing
			plaindump: restore, apply 6, apply 7, recover all after 30s; dirty
			batch 8: apply 8; dirty
			plaindump: restore, apply 8; live
			batch 9: apply 9; live
		`},
		{"a dump without a watermark before anything arrived", engine, `
			start: recover all; syncing
			plaindump: restore, recover all after 30s; dirty
			batch 8: apply 8; dirty
			dump: restore, recover all after 30s; dirty
			plaindump: restore; live
			batch 10: recover 9; syncing
		`},
		{"an empty dump without a watermark knows nothing", engine, `
			batch 6: recover all; syncing
			dump: restore, recover all #2 after 200ms; syncing
			dump 6: restore; live
		`},
		{"the same of a rank that holds something", Options{Recoverable: true, Resume: true, Seq: 4, Attempts: 1}, `
			start: recover 5; syncing
			dump: restore, clear, recover all after 30s; degraded
			dump: restore, recover all after 30s; degraded
			dump 4: restore; live
		`},
		{"a source that has said nothing and could not be asked at first", impatient, `
			start: recover all; syncing
			fail: recover all #2 after 200ms; syncing
			fail: clear, recover all after 30s; degraded
			dump: restore, clear; live
			batch 3: recover all; syncing
		`},
		{"a gap after a rank was healed", impatient, `
			start: recover all; syncing
			fail: recover all #2 after 200ms; syncing
			fail: clear, recover all after 30s; degraded
			dump 4: restore; live
			batch 6: recover 5; syncing
		`},
		{"too new: the answer lags", broker, `
			batch 0: clear, apply 0; live
			batch 2: recover 1; syncing
			toonew 0: recover 1 #2 after 200ms; syncing
			events 1 2: apply 1, apply 2; live
		`},
		{"too new: the source does not know what it said", broker, `
			batch 9: recover all; syncing
			dump 9: restore; live
			batch 12: recover 10; syncing
			toonew 3: recover all #2 after 200ms; syncing
			dump 4: restore, recover 5 #3 after 400ms; syncing
		`},
		{"a quiet source that restarted with a hole open", Options{Ordered: true, Recoverable: true, Attempts: 4}, `
			batch 0 1 2 3 4: clear, apply 0, apply 1, apply 2, apply 3, apply 4; live
			batch 6 7: recover 5; syncing
			toonew 2: recover all #2 after 200ms; syncing
			dump 2: restore, recover 3 #3 after 400ms; syncing
			toonew 2: recover 3 #4 after 800ms; syncing
			toonew 2: -; live
			batch 3: apply 3; live
		`},
		{"the same of a rank that was given up", Options{Ordered: true, Recoverable: true, Attempts: 1}, `
			batch 0: clear, apply 0; live
			batch 6 7: recover 1; syncing
			fail: clear, apply 6, apply 7, recover all after 30s; degraded
			dump 2: restore, recover 3; syncing
			toonew 2: -; live
		`},
		{"the same of a rank without a batch", Options{Ordered: true, Recoverable: true, Attempts: 1}, `
			lost 7: recover all; syncing
			fail: clear, recover all after 30s; degraded
			dump 2: restore, recover 3; syncing
			toonew 2: -; live
		`},
		{"the same of one that tells all it said", Options{Ordered: true, Recoverable: true, Attempts: 3}, `
			batch 0 1 2 3: clear, apply 0, apply 1, apply 2, apply 3; live
			batch 6: recover 4; syncing
			toonew 1: recover all #2 after 200ms; syncing
			events 0 1: clear, apply 0, apply 1, recover 2 #3 after 400ms; syncing
			events: -; live
		`},
		{"the same of one that restarts once more", Options{Ordered: true, Recoverable: true, Attempts: 4}, `
			batch 0 1 2 3: clear, apply 0, apply 1, apply 2, apply 3; live
			batch 6: recover 4; syncing
			toonew 1: recover all #2 after 200ms; syncing
			dump 1: restore, recover 2 #3 after 400ms; syncing
			toonew 0: recover all #4 after 800ms; syncing
			fail: clear, apply 6, recover all after 30s; degraded
		`},
		{"a source that goes on did not restart, its answers lag", Options{Ordered: true, Recoverable: true, Attempts: 3}, `
			batch 0 1 2 3 4: clear, apply 0, apply 1, apply 2, apply 3, apply 4; live
			batch 6: recover 5; syncing
			toonew 2: recover all #2 after 200ms; syncing
			dump 2: restore, recover 3 #3 after 400ms; syncing
			batch 7: -; syncing
			toonew 2: clear, apply 6, apply 7, recover all after 30s; degraded
		`},
		{"gone: what is left of the past is applied", engine, `
			batch 9: recover all; syncing
			gone 6 7 8: clear, apply 6, apply 7, apply 8, apply 9; degraded
			batch 10: apply 10; degraded
		`},
		{"gone after a gap", engine, `
			batch 0: clear, apply 0; live
			batch 9: recover 1; syncing
			gone: clear, apply 9; degraded
			cleared 10: apply 10; live
		`},
		{"what a recovery has overtaken is no restart", engine, `
			batch 5: recover all; syncing
			dump 8: restore; live
			batch 6: -; live
			batch 7: -; live
			batch 8: -; live
			batch 9: apply 9; live
			batch 9: clear, recover all; syncing
		`},
		{"a restart whose beginning was missed", engine, `
			batch 5: recover all; syncing
			dump 5: restore; live
			batch 3: clear, recover all; syncing
			events 0 1 2 3: clear, apply 0, apply 1, apply 2, apply 3; live
		`},
		{"what was held back of a life that is over is dropped", engine, `
			batch 0: clear, apply 0; live
			batch 3 4: recover 1; syncing
			batch 2: clear, recover all; syncing
			dump 2: restore; live
			batch 3: apply 3; live
		`},
		{"a batch that was thrown away is recovered at once", broker, `
			batch 0: clear, apply 0; live
			lost 2: recover 1; syncing
			events 1: apply 1, recover 2; syncing
			toonew 1: recover 2 #2 after 200ms; syncing
			events 2: apply 2; live
		`},
		{"a batch that was thrown away, of a source that cannot be asked", deaf, `
			batch 0: clear, apply 0; live
			lost 1: -; dirty
			batch 2: apply 2; dirty
		`},
		{"a restart before the first batch", engine, `
			start: recover all; syncing
			dump 9: restore; live
			batch 0: clear, apply 0; live
			batch 1: apply 1; live
		`},
		{"the same, its beginning was missed", engine, `
			start: recover all; syncing
			dump 9: restore; live
			batch 3: recover all; syncing
			batch 4: -; syncing
			dump 3: restore, apply 4; live
		`},
		{"a first batch that a dump has overtaken", engine, `
			start: recover all; syncing
			dump 9: restore; live
			batch 8: recover all; syncing
			batch 9: -; syncing
			dump 9: restore; live
			batch 10: apply 10; live
		`},
		{"a restart while the first dump is on its way", engine, `
			start: recover all; syncing
			batch 1 2: -; syncing
			dump 163: recover all; syncing
			dump 2: restore; live
			batch 3: apply 3; live
		`},
		{"a restart while the first batches are on their way", engine, `
			start: recover all; syncing
			batch 1 2: -; syncing
			events 0 1 2 3: recover all; syncing
			events 1 2: clear, apply 1, apply 2; live
		`},
		{"what arrived is still on its way behind a second dump", engine, `
			start: recover all; syncing
			batch 7: -; syncing
			dump 9: recover all; syncing
			dump 9: restore; live
			batch 8: -; live
		`},
		{"a first batch that a dump has overtaken was thrown away", engine, `
			start: recover all; syncing
			dump 9: restore; live
			lost 8: recover all; syncing
			dump 9: restore; live
		`},
		{"a restart while a rank that holds something is recovered", Options{Ordered: true, Recoverable: true, Resume: true, Seq: 4}, `
			start: recover 5; syncing
			batch 2: recover all; syncing
			dump 2: restore; live
		`},
		{"a restart of a source that cannot be asked before its first batch", Options{Ordered: true, Resume: true, Seq: 4}, `
			start: -; live
			batch 1: clear, apply 1; live
			batch 2: apply 2; live
		`},
		{"a rank that holds something goes on where it is", Options{Recoverable: true, Resume: true, Seq: 4}, `
			start: recover 5; syncing
			toonew 4: -; live
			batch 4: -; live
			batch 5: apply 5; live
		`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var script, want strings.Builder
			for line := range strings.Lines(tt.want) {
				if line = strings.TrimSpace(line); line != "" {
					in, _, _ := strings.Cut(line, ":")
					fmt.Fprintln(&script, in)
					fmt.Fprintln(&want, line)
				}
			}
			if diff := cmp.Diff(want.String(), play(t, tt.opt, script.String())); diff != "" {
				t.Error(diff)
			}
		})
	}
}
