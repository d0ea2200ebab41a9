package thompson

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stator-ai/stator/internal/kv"
)

// start is when tests begin.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

func rank(worker int) kv.Source { return kv.Source{Worker: kv.WorkerID(worker)} }

func seeded(n uint64) (*RandDraws, *rand.Rand) {
	r := rand.New(rand.NewPCG(n, 77))
	return NewDraws(r), r
}

// near compares numbers that were written down with nine digits.
var near = cmpopts.EquateApprox(0, 1e-6)

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, near); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func newReference(t testing.TB, change func(*ReferenceConfig)) *Reference {
	t.Helper()
	cfg, err := ReferenceSet(SetConfigYAML)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
	}
	r, err := NewReference(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newSafe(t testing.TB, change func(*SafeConfig)) *Safe {
	t.Helper()
	cfg := DefaultSafe()
	if change != nil {
		change(&cfg)
	}
	s, err := NewSafe(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// full unpacks a symmetric matrix.
func full(a []float64, d int) [][]float64 {
	m := make([][]float64, d)
	for i := range m {
		m[i] = make([]float64, d)
	}
	for i := range d {
		for j := range i + 1 {
			m[i][j], m[j][i] = a[size(i)+j], a[size(i)+j]
		}
	}
	return m
}

// solve is Gauss's elimination, to compare with.
func solve(a [][]float64, b []float64) []float64 {
	d := len(b)
	m := make([][]float64, d)
	for i := range m {
		m[i] = append(append([]float64(nil), a[i]...), b[i])
	}
	for i := range d {
		pivot := i
		for r := i; r < d; r++ {
			if math.Abs(m[r][i]) > math.Abs(m[pivot][i]) {
				pivot = r
			}
		}
		m[i], m[pivot] = m[pivot], m[i]
		for r := range d {
			if r == i {
				continue
			}
			f := m[r][i] / m[i][i]
			for c := i; c <= d; c++ {
				m[r][c] -= f * m[i][c]
			}
		}
	}
	x := make([]float64, d)
	for i := range x {
		x[i] = m[i][d] / m[i][i]
	}
	return x
}

func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
