package sched

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestTenantsShareByTokens has one tenant with a hundred times the requests of the
// other, and requests of very different sizes.
func TestTenantsShareByTokens(t *testing.T) {
	const most = 8192
	for seed := range uint64(5) {
		q := mustQueue(t, QueueConfig{Classes: []Class{{Name: "c", Quantum: 1, Policy: WSPT}}})
		r := rand.New(rand.NewPCG(seed, 0))
		left := make(map[string]int)
		for i := range 101 * 60 {
			w := &Waiter{PromptTokens: 1 + r.IntN(most), Tenant: "many", Arrived: time.Duration(i), Tier: uint32(r.IntN(3)), Jump: r.Float64() * 100}
			if i%101 == 100 {
				w.Tenant = "few"
			}
			push(t, q, w, 0)
			left[w.Tenant]++
		}
		served := make(map[string]int)
		for left["many"] > 0 && left["few"] > 0 {
			w, _ := q.Pop(anyTime)
			left[w.Tenant]--
			served[w.Tenant] += w.PromptTokens
			if d := served["many"] - served["few"]; d > most || d < -most {
				t.Fatalf("seed %d: tokens served %v are more than one request apart", seed, served)
			}
		}
		if left["many"] < 5000 {
			t.Errorf("seed %d: %d requests of the larger tenant left, want most", seed, left["many"])
		}
	}
}

// TestTiersStarveOnlyTheirTenant has a tenant that always has something of a higher
// tier.
func TestTiersStarveOnlyTheirTenant(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	var tick time.Duration
	add := func(tenant string, tier uint32, jump float64) {
		tick++
		push(t, q, &Waiter{Arrived: tick, PromptTokens: 100, Tenant: tenant, Tier: tier, Jump: jump, Value: fmt.Sprintf("%s%d", tenant, tier)}, 0)
	}
	add("a", 0, 0)
	for range 10 {
		add("a", 9, 60)
		add("b", 0, 0)
	}
	served := make(map[string]int)
	for range 100 {
		w, _ := q.Pop(anyTime)
		served[w.Value.(string)]++
		add(w.Tenant, w.Tier, w.Jump)
	}
	if served["a0"] != 0 || served["a9"] != 50 || served["b0"] != 50 {
		t.Errorf("served %v, want 50 of a's tier 9 and 50 of b", served)
	}
}

// TestComingAndGoing has a tenant that waits with one request at a time, and is gone
// in between: it gets no more than one that always waits, and no less than it asks
// for after an absence.
func TestComingAndGoing(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	add := func(tenant string, tokens int) *Waiter {
		w := &Waiter{PromptTokens: tokens, Tenant: tenant, Value: tenant}
		push(t, q, w, 0)
		return w
	}
	for range 1000 {
		add("steady", 10)
	}
	served := make(map[string]int)
	add("hopping", 100)
	for range 220 {
		w, _ := q.Pop(anyTime)
		served[w.Tenant] += w.PromptTokens
		if w.Tenant == "hopping" {
			if f := q.classes[0].flows["hopping"]; f == nil || len(f.cells) > 0 {
				t.Fatal("a tenant that left ahead of time is not remembered")
			}
			checkQueue(t, q)
			add("hopping", 100)
		}
	}
	if d := served["hopping"] - served["steady"]; d > 100 || d < -100 {
		t.Errorf("tokens served %v are more than one request apart", served)
	}

	// A request that is taken back costs nothing and gains nothing.
	before := q.classes[0].flows["hopping"].start
	for w := range q.All() {
		if w.Tenant == "hopping" {
			q.Remove(w)
			break
		}
	}
	w := add("hopping", 100)
	if got := w.cell.flow.start; got != before {
		t.Errorf("the tenant's next start is %d after leaving, %d before", got, before)
	}
	q.Remove(w)

	// Time catches up with who stays away, and then it is forgotten.
	for range 200 {
		q.Pop(anyTime)
	}
	if q.classes[0].flows["hopping"] != nil {
		t.Error("a tenant that has been away for long is remembered")
	}
	for range 10 {
		add("hopping", 100)
	}
	var order []string
	for range 24 {
		w, _ := q.Pop(anyTime)
		order = append(order, w.Tenant[:1])
	}
	got := strings.Join(order, "")
	if n := strings.Count(got, "h"); n < 2 || n > 3 {
		t.Errorf("order %s after an absence: %d of its requests, want 2 or 3 of 24", got, n)
	}
}

// TestBlockedTenantCatchesUpOnce has a tenant whose requests could not go for long:
// it is the next to go, and then shares as before.
func TestBlockedTenantCatchesUpOnce(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	for range 50 {
		push(t, q, &Waiter{PromptTokens: 10, Tenant: "pinned", Lane: 7, Value: "p"}, 0)
		push(t, q, &Waiter{PromptTokens: 10, Tenant: "other", Value: "o"}, 0)
	}
	for range 30 {
		if w, _ := q.Pop(func(w *Waiter, _ int) bool { return w.Lane == 0 }); w.Tenant != "other" {
			t.Fatalf("popped %+v", w)
		}
	}
	var got strings.Builder
	for range 8 {
		w, _ := q.Pop(anyTime)
		fmt.Fprint(&got, w.Value)
	}
	if got, want := got.String(), "ppopopop"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

// TestTenantsWithoutEnd has each request come from a tenant never seen before.
func TestTenantsWithoutEnd(t *testing.T) {
	q := mustQueue(t, QueueConfig{})
	push(t, q, &Waiter{PromptTokens: 1, Tenant: "old", Lane: 1}, 0)
	for i := range maxAway + 100 {
		push(t, q, &Waiter{PromptTokens: 100, Tenant: fmt.Sprint(i)}, 0)
		if w, _ := q.Pop(func(w *Waiter, _ int) bool { return w.Lane == 0 }); w == nil {
			t.Fatal("nothing could go")
		}
	}
	if n := len(q.classes[0].away); n != maxAway {
		t.Errorf("%d tenants are remembered, want %d", n, maxAway)
	}
	checkQueue(t, q)
	drain(q, anyTime)
	checkQueue(t, q)
}
