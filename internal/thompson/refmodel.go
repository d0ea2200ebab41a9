package thompson

import "math"

// linearModel is a Gaussian belief about the weights of the features: precision a and
// vector b, mean a⁻¹·b. The factor and the mean change only with feedback, so that a
// decision solves one triangular system.
type linearModel struct {
	a, l [refDim * (refDim + 1) / 2]float64
	b    [refDim]float64
	mean [refDim]float64
	// whitening, where it is not nil, stands in for l: its rows are eigenvectors divided by
	// the roots of their eigenvalues.
	whitening *[refDim][refDim]float64
}

// refresh makes factor and mean of a and b. Jitter is added to the diagonal, more of it if
// there is no factor otherwise; if that does not help, eigenvectors are used.
func (m *linearModel) refresh() {
	m.whitening = nil
	for jitter := 1e-9; jitter < 2e-3; jitter *= 10 {
		if cholesky(m.l[:], m.a[:], refDim, jitter) {
			forward(m.mean[:], m.l[:], m.b[:])
			backward(m.mean[:], m.l[:], m.mean[:])
			return
		}
	}
	values, vectors := eigen(m.a[:], refDim)
	largest := 0.0
	for _, v := range values {
		largest = max(largest, math.Abs(v))
	}
	m.mean = [refDim]float64{}
	m.whitening = new([refDim][refDim]float64)
	for i, v := range values {
		along := dot(vectors[i], m.b[:])
		root := math.Sqrt(max(v, 1e-10))
		for j, w := range vectors[i] {
			if math.Abs(v) > 1e-15*largest {
				m.mean[j] += along / v * w
			}
			m.whitening[i][j] = w / root
		}
	}
}

// whiten makes y what a vector of standard normal variates is multiplied with to sample
// the noise at x: its square sum is the variance.
func (m *linearModel) whiten(y, x *[refDim]float64) {
	if m.whitening == nil {
		forward(y[:], m.l[:], x[:])
		return
	}
	for i := range y {
		y[i] = dot(m.whitening[i][:], x[:])
	}
}

// sample returns the mean at x and a draw's distance from it, in which v scales the
// standard deviation.
func (m *linearModel) sample(d Draws, v float64, x *[refDim]float64) (mean, noise float64) {
	var y, z [refDim]float64
	m.whiten(&y, x)
	norms(d, z[:])
	return dot(m.mean[:], x[:]), v * dot(z[:], y[:])
}

// learn takes a reward at x in. What was learned before counts less by the factor keep; of
// the prior as much comes back.
func (m *linearModel) learn(x *[refDim]float64, reward, keep, lambda float64) {
	for i := range m.a {
		m.a[i] *= keep
	}
	outer(m.a[:], x[:], 1)
	for i, at := 0, 0; i < refDim; i++ {
		m.a[at] += (1 - keep) * lambda
		at += i + 2
		m.b[i] = keep*m.b[i] + reward*x[i]
	}
	m.refresh()
}
