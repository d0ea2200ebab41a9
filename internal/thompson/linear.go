package thompson

import "math"

// Symmetric and triangular matrices of d rows are packed: the lower triangle, row by row.
// The entry of row i and column j ≤ i is at i(i+1)/2+j. A triangular factor holds the
// reciprocals of its diagonal, so that solving takes no division.

// size is the number of entries of a packed matrix.
func size(d int) int { return d * (d + 1) / 2 }

// diagonal returns the packed matrix with v on its diagonal.
func diagonal(a []float64, d int, v float64) {
	clear(a)
	for i, at := 0, 0; i < d; i++ {
		a[at] = v
		at += i + 2
	}
}

// cholesky makes l the factor of a with jitter added to its diagonal, and reports whether
// there is one.
func cholesky(l, a []float64, d int, jitter float64) bool {
	row := 0
	for i := range d {
		li := l[row : row+i+1]
		col := 0
		for j := range i {
			lj := l[col : col+j+1]
			sum := a[row+j]
			for k, v := range lj[:j] {
				sum -= li[k] * v
			}
			li[j] = sum * lj[j]
			col += j + 1
		}
		sum := a[row+i] + jitter
		for _, v := range li[:i] {
			sum -= v * v
		}
		if !(sum > 0) || math.IsInf(sum, 1) {
			return false
		}
		li[i] = 1 / math.Sqrt(sum)
		row += i + 1
	}
	return true
}

// forward makes y the solution of L·y = x. They may be the same.
func forward(y, l, x []float64) {
	row := 0
	for i := range x {
		li := l[row : row+i+1]
		sum := x[i]
		for k, v := range y[:i] {
			sum -= li[k] * v
		}
		y[i] = sum * li[i]
		row += i + 1
	}
}

// backward makes y the solution of Lᵀ·y = z. They may be the same.
func backward(y, l, z []float64) {
	copy(y, z)
	for i := len(z) - 1; i >= 0; i-- {
		row := l[size(i):]
		v := y[i] * row[i]
		y[i] = v
		for k := range i {
			y[k] -= row[k] * v
		}
	}
}

// outer adds s·x·xᵀ to a packed matrix.
func outer(a, x []float64, s float64) {
	at := 0
	for i, v := range x {
		v *= s
		for _, w := range x[:i+1] {
			a[at] += v * w
			at++
		}
	}
}

func dot(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

// eigen returns the eigenvalues of a packed matrix and its eigenvectors, one per row, by
// Jacobi's rotations. It is for matrices that have no Cholesky factor, and allocates.
func eigen(a []float64, d int) (values []float64, vectors [][]float64) {
	m := make([][]float64, d)
	vectors = make([][]float64, d)
	for i := range d {
		m[i], vectors[i] = make([]float64, d), make([]float64, d)
		vectors[i][i] = 1
	}
	scale := 0.0
	for i := range d {
		for j := range i + 1 {
			v := a[size(i)+j]
			m[i][j], m[j][i] = v, v
			scale = max(scale, math.Abs(v))
		}
	}
	for range 60 { // a dozen rounds do
		off := 0.0
		for i := range d {
			for j := range i {
				off = max(off, math.Abs(m[i][j]))
			}
		}
		if off <= 1e-15*scale {
			break
		}
		for p := range d {
			for q := p + 1; q < d; q++ {
				rotate(m, vectors, p, q)
			}
		}
	}
	values = make([]float64, d)
	for i := range d {
		values[i] = m[i][i]
	}
	return values, vectors
}

// rotate makes the entry of row p and column q zero.
func rotate(m, vectors [][]float64, p, q int) {
	if m[p][q] == 0 {
		return
	}
	theta := (m[q][q] - m[p][p]) / (2 * m[p][q])
	t := 1 / (math.Abs(theta) + math.Hypot(theta, 1))
	if theta < 0 {
		t = -t
	}
	c := 1 / math.Hypot(t, 1)
	s := t * c
	for k := range m {
		kp, kq := m[k][p], m[k][q]
		m[k][p], m[k][q] = c*kp-s*kq, s*kp+c*kq
	}
	for k := range m {
		pk, qk := m[p][k], m[q][k]
		m[p][k], m[q][k] = c*pk-s*qk, s*pk+c*qk
		pk, qk = vectors[p][k], vectors[q][k]
		vectors[p][k], vectors[q][k] = c*pk-s*qk, s*pk+c*qk
	}
}
