package kvlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/stator-ai/stator/internal/kv"
)

// line is a line of a recording: a batch that is cleared.
func line(millis int, worker, seq uint64) string {
	return fmt.Sprintf(`{"timestamp":%d,"event":{"worker_id":%d,"event":{"event_id":%d,"data":"cleared","dp_rank":0}}}`, millis, worker, seq) + "\n"
}

// cleared is what is read of n such lines.
func cleared(millis int, worker kv.WorkerID, seq uint64, n int) timed {
	b := &kv.Batch{Source: kv.Source{Worker: worker}, Seq: seq}
	for range n {
		b.Events = append(b.Events, kv.Event{Kind: kv.Cleared})
	}
	return timed{time.Duration(millis) * time.Millisecond, b}
}

func compress(t testing.TB, data string) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	return enc.EncodeAll([]byte(data), nil)
}

// collect reads all there is, and what was skipped as text.
func collect(r *Reader) (batches []timed, faults []string) {
	for at, b := range r.Batches() {
		batches = append(batches, timed{at, b})
	}
	for _, e := range r.Skipped().First {
		faults = append(faults, e.Error())
	}
	return batches, faults
}

func TestReader(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []timed
		faults   []string
	}{
		{"empty", "", nil, nil},
		{"one", line(5, 1, 2), []timed{cleared(5, 1, 2, 1)}, nil},
		{"without an end of line", strings.TrimSuffix(line(5, 1, 2), "\n"), []timed{cleared(5, 1, 2, 1)}, nil},
		{"blank lines", "\n \t\r\n" + line(5, 1, 2) + "\n\n" + line(6, 1, 3) + "\n", []timed{cleared(5, 1, 2, 1), cleared(6, 1, 3, 1)}, nil},
		{"byte order mark", "\ufeff" + line(5, 1, 2), []timed{cleared(5, 1, 2, 1)}, nil},
		{"line ends of Windows", strings.ReplaceAll(line(5, 1, 2)+line(6, 1, 3), "\n", "\r\n"), []timed{cleared(5, 1, 2, 1), cleared(6, 1, 3, 1)}, nil},
		{
			"one batch, at the time of its first event",
			line(5, 1, 2) + line(6, 1, 2) + "\n" + line(7, 1, 2), []timed{cleared(5, 1, 2, 3)}, nil,
		},
		{
			"batches of two sources",
			line(5, 1, 2) + line(5, 2, 2) + line(5, 2, 2) + line(5, 1, 2), []timed{cleared(5, 1, 2, 1), cleared(5, 2, 2, 2), cleared(5, 1, 2, 1)}, nil,
		},
		{
			"time that goes back",
			line(5, 1, 2) + line(4, 1, 3), []timed{cleared(5, 1, 2, 1), cleared(4, 1, 3, 1)}, nil,
		},
		{
			"members in another order, unknown ones, and no epoch",
			`{"more":[{}], "epoch":null, "event":{"event":{"data":"cleared","event_id":2},"worker_id":1}, "timestamp":5}`, []timed{cleared(5, 1, 2, 1)}, nil,
		},
		{
			"bad lines",
			line(5, 1, 2) + "{\n" + "[]\n" + "null\n" + strings.Replace(line(5, 1, 3), "5", "-5", 1) + strings.Replace(line(5, 1, 3), "5", "5.5", 1) +
				strings.Replace(line(5, 1, 3), "5", "9223372036855", 1) + `{"timestamp":1}` + "\n" + `{"timestamp":1,"event":"cleared"}` + "\n" +
				line(5, 0, 2) + `{"timestamp":1,"epoch":-1,` + line(5, 1, 2)[len(`{"timestamp":5,`):] + "\x00\n" + line(6, 1, 3) + line(7, 1, 4)[:40],
			[]timed{cleared(5, 1, 2, 1), cleared(6, 1, 3, 1)},
			[]string{
				"line 2: ", "line 3: ", "line 4: ",
				"line 5: timestamp: expected a whole number of milliseconds",
				"line 6: timestamp: expected a whole number of milliseconds",
				"line 7: timestamp: expected a whole number of milliseconds",
				"line 8: event: expected an object, got nothing",
				"line 9: event: expected an object, got a string",
				"line 10: kv event: worker_id: ",
				"line 11: epoch: expected a whole number that is not negative",
				// and no more than ten
			},
		},
		{
			"a line that is cut off",
			line(5, 1, 2) + line(6, 1, 3)[:50], []timed{cleared(5, 1, 2, 1)}, []string{"line 2: "},
		},
		{
			"a bad line inside a batch",
			line(5, 1, 2) + "bad\n" + line(5, 1, 2), []timed{cleared(5, 1, 2, 2)}, []string{"line 2: "},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, in := range map[string]io.Reader{
				"plain":       strings.NewReader(tc.in),
				"byte wise":   iotest.OneByteReader(strings.NewReader(tc.in)),
				"compressed":  bytes.NewReader(compress(t, tc.in)),
				"in two":      bytes.NewReader(append(compress(t, tc.in[:len(tc.in)/2]), compress(t, tc.in[len(tc.in)/2:])...)),
				"skip frames": bytes.NewReader(append([]byte{0x5a, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9}, compress(t, tc.in)...)),
			} {
				r := NewReader(in)
				got, faults := collect(r)
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: batches (-want +got):\n%s", name, diff)
				}
				ok := len(faults) == len(tc.faults)
				for i := 0; ok && i < len(faults); i++ {
					ok = strings.HasPrefix(faults[i], tc.faults[i])
				}
				if !ok {
					t.Errorf("%s: faults %q, want %q", name, faults, tc.faults)
				}
				if err := r.Err(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := r.Close(); err != nil {
					t.Errorf("%s: close: %v", name, err)
				}
			}
		})
	}
}

func TestReaderCountsAllBadLines(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("bad\n", 25) + line(1, 1, 1)))
	got, faults := collect(r)
	if len(got) != 1 || len(faults) != maxFaults || r.Skipped().Lines != 25 {
		t.Errorf("%d batches, %d faults, %d lines skipped; want 1, %d, 25", len(got), len(faults), r.Skipped().Lines, maxFaults)
	}
}

func TestReaderEpoch(t *testing.T) {
	restart := strings.Replace(line(5, 1, 2), "}}}", `}},"epoch":18446744073709551615}`, 1)
	got, faults := collect(NewReader(strings.NewReader(line(5, 1, 2) + restart + restart)))
	second := cleared(5, 1, 2, 2)
	second.Batch.Epoch = 1<<64 - 1
	if diff := cmp.Diff([]timed{cleared(5, 1, 2, 1), second}, got); diff != "" || faults != nil {
		t.Errorf("batches (-want +got), %v:\n%s", faults, diff)
	}
}

// A batch that is put together from lines is bounded as a line is.
func TestReaderLimits(t *testing.T) {
	one := line(5, 1, 2)
	limit := 70 << 10
	fits := limit / (len(one) - 1)
	long := strings.Replace(one, "}}}", "}}"+strings.Repeat(" ", limit-len(one))+"}", 1)
	for _, tc := range []struct {
		name, in string
		want     []timed
		faults   []string
	}{
		{"as long as may be", long, []timed{cleared(5, 1, 2, 1)}, nil},
		{"too long", one + " " + long + line(6, 1, 3), []timed{cleared(5, 1, 2, 1), cleared(6, 1, 3, 1)}, []string{"line 2: expected at most 64 MiB"}},
		{"too long at the end", one + strings.Repeat("x", 4*limit), []timed{cleared(5, 1, 2, 1)}, []string{"line 2: expected at most 64 MiB"}},
		{"a batch too long", strings.Repeat(one, fits+1), []timed{cleared(5, 1, 2, fits), cleared(5, 1, 2, 1)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newReader(strings.NewReader(tc.in), limit)
			got, faults := collect(r)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.faults, faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if err := r.Err(); err != nil {
				t.Error(err)
			}
			if cap(r.lines.buf) > 2*limit {
				t.Errorf("a buffer of %d bytes", cap(r.lines.buf))
			}
		})
	}
}

func TestReaderGoesOn(t *testing.T) {
	r := NewReader(strings.NewReader(line(1, 1, 1) + line(2, 1, 2) + line(3, 1, 3)))
	var got []uint64
	for range 4 {
		for _, b := range r.Batches() {
			got = append(got, b.Seq)
			break
		}
	}
	if diff := cmp.Diff([]uint64{1, 2, 3}, got); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func TestReaderClosed(t *testing.T) {
	r := NewReader(strings.NewReader(line(1, 1, 1) + line(2, 1, 2) + line(3, 1, 3)))
	for range r.Batches() {
		break
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if got, _ := collect(r); len(got) != 0 || r.Err() != nil {
		t.Errorf("%d batches after Close, %v", len(got), r.Err())
	}
}

func TestReaderCutOffFrame(t *testing.T) {
	var in strings.Builder
	for i := range 20000 {
		in.WriteString(line(i, 1, uint64(i)))
	}
	whole := compress(t, line(0, 2, 0))
	cut := compress(t, in.String())
	r := NewReader(bytes.NewReader(append(whole, cut[:len(cut)-7]...)))
	got, faults := collect(r)
	if len(got) == 0 || got[0].Batch.Source.Worker != 2 {
		t.Errorf("%d batches, want at least that of the whole frame", len(got))
	}
	if len(faults) != 1 || !errors.Is(r.Skipped().First[0], ErrCutOff) || r.Err() != nil {
		t.Errorf("faults %q, error %v", faults, r.Err())
	}
}

// What follows a recording that was cut off is not read, and the reader says that
// something is missing.
func TestReaderAfterCutOffFrame(t *testing.T) {
	var in strings.Builder
	for i := range 50 {
		in.WriteString(line(i, 1, uint64(i)))
	}
	whole, cut, after := compress(t, line(0, 2, 0)), compress(t, in.String()), compress(t, line(0, 3, 0))
	for n := 1; n < len(cut); n++ {
		r := NewReader(bytes.NewReader(slices.Concat(whole, cut[:n], after)))
		got, _ := collect(r)
		if len(got) == 0 || got[0].Batch.Source.Worker != 2 {
			t.Errorf("cut off after %d of %d bytes: %d batches, want at least that of the whole frame", n, len(cut), len(got))
		}
		if r.Err() == nil && r.Skipped().Lines == 0 {
			t.Errorf("cut off after %d of %d bytes: %d batches and no word of it", n, len(cut), len(got))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	t.Run("missing file", func(t *testing.T) {
		if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want %v", err, fs.ErrNotExist)
		}
	})
	t.Run("directory", func(t *testing.T) {
		if _, err := Open(t.TempDir()); err == nil {
			t.Error("no error")
		}
	})
	t.Run("at the beginning", func(t *testing.T) {
		r := NewReader(iotest.ErrReader(broken))
		if got, _ := collect(r); len(got) != 0 || !errors.Is(r.Err(), broken) {
			t.Errorf("%d batches, %v", len(got), r.Err())
		}
	})
	t.Run("later", func(t *testing.T) {
		r := NewReader(io.MultiReader(strings.NewReader(line(1, 1, 1)+line(2, 1, 2)+`{"time`), iotest.ErrReader(broken)))
		got, faults := collect(r)
		var at *LineError
		if len(got) != 2 || faults != nil || !errors.Is(r.Err(), broken) || !errors.As(r.Err(), &at) || at.Line != 3 {
			t.Errorf("%d batches, %v, %v", len(got), faults, r.Err())
		}
	})
	t.Run("not what it seems", func(t *testing.T) {
		r := NewReader(strings.NewReader("\x28\xb5\x2f\xfdgarbage that goes on"))
		if got, _ := collect(r); len(got) != 0 || r.Err() == nil {
			t.Errorf("%d batches, %v", len(got), r.Err())
		}
	})
}

// FuzzReader: nothing makes the reader panic, and what it reads is the same again
// after it was recorded.
func FuzzReader(f *testing.F) {
	f.Add([]byte(line(1, 1, 1) + line(2, 1, 1) + "\n" + line(2, 1, 2)))
	f.Add([]byte(`{"timestamp":0,"event":{"worker_id":7,"event":{"event_id":42,"data":{"stored":{"parent_hash":1,"blocks":[{"block_hash":100,"tokens_hash":200,"mm_extra_info":null}]}},"dp_rank":3}},"epoch":4}
{"timestamp":1,"event":{"worker_id":7,"storage_tier":"disk","event":{"event_id":42,"data":{"removed":{"block_hashes":[-1],"counted":true}},"dp_rank":3}},"epoch":4}
{"timestamp":1,"event":{"worker_id":7`))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00bad"))
	f.Add(compress(f, line(1, 1, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newReader(bytes.NewReader(data), 1<<16)
		defer r.Close()
		var again []byte
		var want []timed
		for at, b := range r.Batches() {
			if len(b.Events) == 0 || at < 0 || b.Source.Worker == 0 {
				t.Fatalf("at %v: %+v", at, b)
			}
			for i := range b.Events {
				var err error
				if again, err = appendLine(again, at, b, &b.Events[i]); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, timed{at, b})
		}
		if s := r.Skipped(); len(s.First) != min(s.Lines, maxFaults) {
			t.Fatalf("%d lines skipped, told of %d", s.Lines, len(s.First))
		}
		second := NewReader(bytes.NewReader(again))
		got, faults := collect(second)
		// A batch that was divided because it was large may come back whole.
		if diff := cmp.Diff(joined(want), joined(got), skipEmpty); diff != "" || faults != nil {
			t.Fatalf("-first +second, %q:\n%s", faults, diff)
		}
	})
}

// joined puts the parts of batches together.
func joined(batches []timed) []timed {
	var out []timed
	for _, b := range batches {
		if n := len(out); n > 0 {
			last := out[n-1].Batch
			if last.Source == b.Batch.Source && last.Seq == b.Batch.Seq && last.Epoch == b.Batch.Epoch {
				c := *last
				c.Events = append(c.Events[:len(c.Events):len(c.Events)], b.Batch.Events...)
				out[n-1].Batch = &c
				continue
			}
		}
		out = append(out, b)
	}
	return out
}
