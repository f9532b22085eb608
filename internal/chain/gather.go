package chain

import (
	"bytes"
	"io"
	"slices"
	"sync"
)

// exact is the size up to which an announced length is taken at its word, and of
// the pieces that a longer answer is gathered in.
const exact = 1 << 20

var scratch = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// gather reads an answer of unknown length: into a buffer that is used again,
// and what does not fit there in pieces, since the copies of a buffer that grows
// add up to more than twice the answer. Of an answer above the limit it returns
// the beginning, and says so.
func gather(body io.Reader, limit int64) (answer []byte, over bool, err error) {
	r := io.LimitReader(body, limit+1)
	buf := scratch.Get().(*bytes.Buffer)
	defer func() {
		if buf.Cap() <= exact { // a larger one is not worth keeping
			buf.Reset()
			scratch.Put(buf)
		}
	}()
	n, err := buf.ReadFrom(io.LimitReader(r, exact))
	if answer = bytes.Clone(buf.Bytes()[:min(n, limit)]); n > limit {
		return answer, true, nil
	}
	if err != nil || n < exact {
		return answer, false, err
	}
	pieces := [][]byte{answer}
	for err == nil {
		var piece []byte
		piece, err = fill(r, make([]byte, exact))
		pieces = append(pieces, piece)
		if n += int64(len(piece)); n > limit {
			return answer, true, nil
		}
	}
	if err == io.EOF {
		err = nil
	}
	return slices.Concat(pieces...), false, err
}

// fill reads until p is full, and ends with the error of r itself: io.ReadFull
// would not tell the end of an answer from a cut.
func fill(r io.Reader, p []byte) ([]byte, error) {
	for n := 0; ; {
		if n == len(p) {
			return p, nil
		}
		m, err := r.Read(p[n:])
		if n += m; err != nil {
			return p[:n], err
		}
	}
}
