package svc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"example.com/svc/internal/chain"
	"example.com/svc/internal/errbody"
	"example.com/svc/internal/jsonx"
)

// identified is an answer that shows whether it is what was promised: a record by
// its id, a list by the ids of its records.
type identified interface {
	identity() (field, id string)
}

type record[T any] interface {
	*T
	identified
}

// records is a list of records.
type records[T any, P record[T]] []T

func (l *records[T, P]) identity() (field, id string) { return identities[T, P]("", *l) }

// empty stands for the identity of a list without records, which is one unless the
// answer says otherwise.
const empty = "an empty list"

// identities finds the first record of a named list that is none: it has no id,
// and nothing else either.
func identities[T any, P record[T]](name string, list []T) (field, id string) {
	for i := range list {
		if field, id := P(&list[i]).identity(); id == "" && reflect.ValueOf(&list[i]).Elem().IsZero() {
			return fmt.Sprintf("%s[%d].%s", name, i, field), ""
		}
	}
	if len(list) == 0 {
		return "", empty
	}
	return "", "a list"
}

// decode reads a successful answer into out, and takes nothing for a record
// that is not the one asked for.
func (c *Client) decode(k *call, r *chain.Result, out any) error {
	body := jsonx.TrimBOM(r.Body)
	if tooMany(body) {
		return c.notPromised(k, r, "", errTooMany)
	}
	var field string
	err := json.Unmarshal(body, out)
	switch rec, ok := out.(identified); {
	case err != nil && len(bytes.TrimSpace(body)) == 0:
		err = fmt.Errorf("the body is empty: %w", io.ErrUnexpectedEOF)
	case err != nil:
		if path, leaf := jsonx.Locate(body, out, c.chain.Redactor().String); leaf != nil {
			field, err = path, leaf
		}
	case ok:
		var id string
		if field, id = rec.identity(); id == "" {
			err = errors.New("missing from the answer")
		} else if id == empty && denies(body) {
			err = errDenied
		} else if problem := idProblem(id); k.unknown != nil && problem != "" {
			err = errors.New(problem)
		} else if k.hasID && id != k.id {
			err = errors.New("the answer is about another record than was asked for")
		}
	}
	if err == nil {
		return nil
	}
	return c.notPromised(k, r, field, err)
}

// isPage reports whether a body is a page for people, as proxies send.
func isPage(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(jsonx.TrimBOM(body)), []byte("<"))
}

var errDenied = errors.New("an error, in an answer of success")

// denies reports whether an answer of success holds an error all the same, as some
// gateways send it. A record may have a field of that name, so it is for answers
// that show nothing else.
func denies(body []byte) bool {
	var said struct{ Error, Errors json.RawMessage }
	_ = json.Unmarshal(body, &said) // what is no object says nothing
	for _, e := range [...]json.RawMessage{said.Error, said.Errors} {
		switch string(e) {
		case "", "null", "false", "0", `""`, "{}", "[]":
		default:
			return true
		}
	}
	return false
}

var errTooMany = errors.New("more objects than an answer of this size can have in earnest")

// tooMany reports whether the records of an answer would take a hundred times the
// memory of their text: {},{},{} a million times over.
func tooMany(body []byte) bool {
	const large, least = 1 << 20, 32 // bytes of an answer, and of an object in it
	return len(body) > large && bytes.Count(body, []byte("{")) > len(body)/least
}

// notPromised makes the error of a successful answer that is not what it should
// be.
func (c *Client) notPromised(k *call, r *chain.Result, field string, err error) error {
	red := c.chain.Redactor()
	contentType := r.Header.Get("Content-Type")
	bounded, _ := red.Cut(jsonx.TrimBOM(r.Body), 4<<10, false)
	e := &DecodeError{
		Method: k.method, Route: k.route, StatusCode: r.StatusCode, ContentType: errbody.Label(contentType, red.String),
		RequestID: errbody.RequestID(r.Header, red.String), Field: red.String(field),
		Excerpt: errbody.ExcerptScrubbed(contentType, bounded, red.String), Err: red.Error(err),
	}
	if k.unknown != nil {
		return k.unknown(c, *k, r, e)
	}
	return e
}
