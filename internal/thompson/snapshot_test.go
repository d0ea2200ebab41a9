package thompson

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReferenceSnapshot(t *testing.T) {
	r := newReference(t, nil)
	d, rnd := seeded(51)
	arms := []Arm{{ID: rank(1)}, {ID: rank(2), Overlap: .5}, {ID: rank(3)}}
	out := make([]Choice, len(arms))
	for i := range 300 {
		now := after(float64(i))
		req := &Request{PromptTokens: rnd.IntN(4000), OSL: Level(rnd.IntN(3)), IAT: Level(rnd.IntN(3))}
		dec := r.Decide(now, d, req, arms, out)
		if _, err := r.Feedback(now, dec.ID, Feedback{Latency: time.Duration(rnd.IntN(1e9)), TokensOut: rnd.IntN(50), Failed: rnd.IntN(9) == 0}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := r.State().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	other := newReference(t, nil)
	if err := other.Restore(data); err != nil {
		t.Fatal(err)
	}
	again, err := other.State().MarshalJSON()
	if err != nil || string(again) != string(data) {
		t.Errorf("the snapshot of what was restored differs (%v):\n%s", err, cmp.Diff(string(data), string(again)))
	}

	// The same draws lead to the same decisions, and a rank that joins is welcome.
	arms = append(arms, Arm{ID: rank(4)})
	out1, out2 := make([]Choice, len(arms)), make([]Choice, len(arms))
	d1, _ := seeded(52)
	d2, _ := seeded(52)
	for i := range 200 {
		now := after(float64(300 + i))
		req := &Request{PromptTokens: rnd.IntN(4000), Prefix: NewPrefixID("", string(rune('a'+i%20))), Budget: i % 3}
		a, b := r.Decide(now, d1, req, arms, out1), other.Decide(now, d2, req, arms, out2)
		a.ID, b.ID = 0, 0
		if a != b || !cmp.Equal(out1, out2) {
			t.Fatalf("decision %d: %+v and %+v\n%s", i, a, b, cmp.Diff(out1, out2))
		}
	}
	// One that never comes back is forgotten.
	if err := other.Restore(data); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		other.Decide(after(4000*float64(i)), d2, &Request{}, arms[:2], out2)
	}
	if n := other.Stats().Arms; n != 2 {
		t.Errorf("%d ranks, want 2", n)
	}
}

func TestSafeSnapshot(t *testing.T) {
	exact := cmpopts.EquateApprox(1e-12, 0) // what is left of offsets is computed from another time
	for _, oneHead := range []bool{false, true} {
		change := func(c *SafeConfig) { c.OneHead = oneHead }
		s := newSafe(t, change)
		d, rnd := seeded(53)
		out1, out2 := make([]SafeChoice, 3), make([]SafeChoice, 3)
		run := func(s *Safe, d Draws, out []SafeChoice, at float64, ttft time.Duration) SafeDecision {
			dec := s.Decide(after(at), d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, vectorArms(), out)
			if err := s.FirstToken(after(at+.1), dec.ID, ttft); err != nil {
				t.Fatal(err)
			}
			if err := s.Done(after(at+.2), dec.ID, ttft/10, Completed); err != nil {
				t.Fatal(err)
			}
			return dec
		}
		for i := range 200 {
			run(s, d, out1, float64(i), time.Duration(1+rnd.IntN(1e9)))
		}
		data, err := s.State().MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		other := newSafe(t, change)
		if err := other.Restore(data); err != nil {
			t.Fatal(err)
		}
		d1, _ := seeded(54)
		d2, _ := seeded(54)
		for i := range 200 {
			ttft := time.Duration(1 + rnd.IntN(1e9))
			a, b := run(s, d1, out1, float64(500+i), ttft), run(other, d2, out2, float64(500+i), ttft)
			a.ID, b.ID = 0, 0
			if a != b || !cmp.Equal(out1, out2, exact) {
				t.Fatalf("one head %v, decision %d: %+v and %+v\n%s", oneHead, i, a, b, cmp.Diff(out1, out2, exact))
			}
		}
		if d := cmp.Diff(s.Stats(), other.Stats(), cmpopts.EquateEmpty(), exact); d != "" {
			t.Errorf("one head %v: stats differ:\n%s", oneHead, d)
		}
	}
}

// TestSafeRestoreBounds: whatever a snapshot says, the policy goes on some time.
func TestSafeRestoreBounds(t *testing.T) {
	saved := newSafe(t, nil)
	saved.until, saved.budget = after(1e9), -1e300
	data, err := saved.State().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(*Safe){
		"decide": func(s *Safe) {
			d, _ := seeded(1)
			dec := s.Decide(start, d, &Request{PromptTokens: 1024, BlockSize: 16, Baseline: 1}, vectorArms(), make([]SafeChoice, 3))
			if dec.Why != WhyStopped {
				t.Errorf("%+v, want it to be stopped", dec)
			}
		},
		"tick": func(s *Safe) { s.Tick(start) },
	} {
		s := newSafe(t, nil)
		if err := s.Restore(data); err != nil {
			t.Fatal(err)
		}
		call(s)
		if st := s.Stats(); st.StoppedUntil != start.Add(10*time.Minute) || st.Budget != -1.25 {
			t.Errorf("%s: stopped until %v with a budget of %v", name, st.StoppedUntil, st.Budget)
		}
	}
}

func TestSnapshotRefused(t *testing.T) {
	r, s := newReference(t, nil), newSafe(t, nil)
	d, _ := seeded(1)
	r.Decide(start, d, &Request{}, []Arm{{ID: rank(7)}}, make([]Choice, 1))
	s.Decide(start, d, &Request{}, []Arm{{ID: rank(7)}}, make([]SafeChoice, 1))
	ref, err := r.State().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	safe, err := s.State().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	change := func(data []byte, from, to string) string {
		t.Helper()
		if !strings.Contains(string(data), from) {
			t.Fatalf("%q is not in %s", from, data)
		}
		return strings.Replace(string(data), from, to, 1)
	}
	for _, c := range []struct {
		restore func([]byte) error
		data    string
		want    string
	}{
		{r.Restore, change(ref, `"version":1`, `"version":2`), "unusable snapshot: version 2: expected 1"},
		{r.Restore, `{}`, "unusable snapshot: version 0: expected 1"},
		{r.Restore, string(safe), `unusable snapshot: policy "safe": expected "reference"`},
		{s.Restore, string(ref), `unusable snapshot: policy "reference": expected "safe"`},
		{r.Restore, `garbage`, "unusable snapshot: invalid character 'g' looking for beginning of value"},
		{r.Restore, string(ref[:len(ref)-2]), "unusable snapshot: unexpected end of JSON input"},
		{r.Restore, change(ref, `"precision":[1,`, `"precision":[`), "arm 7/0: unusable snapshot: precision of 44 and vector of 9 numbers: expected 45 and 9"},
		{r.Restore, change(ref, `"precision":[1,`, `"precision":[-1,`), "arm 7/0: unusable snapshot: precision is not positive definite"},
		{r.Restore, change(ref, `"vector":[0,`, `"vector":[1e300,`), "arm 7/0: unusable snapshot: a weight's mean is 1e+300: expected at most 1e+06"},
		{r.Restore, change(ref, `"alpha":1`, `"alpha":0`), "arm 7/0: unusable snapshot: alpha 0, beta 1: expected numbers above 0"},
		{r.Restore, change(ref, `"alpha":1`, `"alpha":1e999`), "unusable snapshot: json: cannot unmarshal number 1e999 into Go struct field refArmSnapshot.arms.alpha of type float64"},
		{s.Restore, change(safe, `"one_head":false`, `"one_head":true`), "unusable snapshot: one_head is true in the snapshot and false in the configuration"},
		{s.Restore, change(safe, `"tokens":9000`, `"tokens":0`), "unusable snapshot: prefill: 0 tokens in 1 s: expected numbers above 0"},
		{s.Restore, change(safe, `"count":0`, `"count":-1`), "arm 7/0: unusable snapshot: offset 0: mean 0, count -1: expected one of at most 1e+06 and one of at least 0"},
	} {
		err := c.restore([]byte(c.data))
		if message(err) != c.want || !errors.Is(err, ErrSnapshot) {
			t.Errorf("%.60s…\n got %v\nwant %s", c.data, err, c.want)
		}
	}
	if r.Stats().Arms != 1 || r.Stats().Pending != 1 || s.Stats().Pending != 1 {
		t.Error("a refused snapshot changed something")
	}
}

// What is learned later is not in a state.
func TestStateIsACopy(t *testing.T) {
	r, s := newReference(t, nil), newSafe(t, nil)
	d, _ := seeded(1)
	learn := func() {
		ref := r.Decide(start, d, &Request{PromptTokens: 100}, []Arm{{ID: rank(7)}}, make([]Choice, 1))
		if _, err := r.Feedback(start, ref.ID, Feedback{Latency: time.Second, TokensOut: 10}); err != nil {
			t.Fatal(err)
		}
		safe := s.Decide(start, d, &Request{PromptTokens: 100}, []Arm{{ID: rank(7)}}, make([]SafeChoice, 1))
		if s.FirstToken(start, safe.ID, time.Second) != nil || s.Done(start, safe.ID, time.Millisecond, Completed) != nil {
			t.Fatal("feedback")
		}
	}
	learn()
	for name, state := range map[string]func() State{"reference": r.State, "safe": s.State} {
		kept := state()
		before, err := kept.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		learn()
		if after, err := kept.MarshalJSON(); err != nil || string(after) != string(before) {
			t.Errorf("%s: changed (%v):\n%s", name, err, cmp.Diff(string(before), string(after)))
		}
		if now, err := state().MarshalJSON(); err != nil || string(now) == string(before) {
			t.Errorf("%s: nothing was learned (%v)", name, err)
		}
	}
}
