package svc

import (
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Price is an exact decimal number, kept as the text that the service sent: 0.1 stays 0.1.
// The zero value is a price that is not set. A price of 0 is set. Compare prices with
// [Price.Cmp]: for the operator == the prices 3 and 3.0 are different.
//
// If a value is not a number, its record is decoded all the same: the price is not set, and
// [Price.Raw] returns the text of the value.
type Price struct {
	text string // the price as a JSON number; empty: the price is not set
	raw  string // the text that was read, if it was not a number; otherwise empty
}

// ParsePrice reads a decimal number as JSON writes it: "0.25", "3", "1e-7".
func ParsePrice(s string) (Price, error) {
	if !isNumber(s) {
		return Price{}, errors.New("svc: price: not a decimal number, or out of range")
	}
	return Price{text: s}, nil
}

// IsZero reports whether the price is not set, also for the omitzero option of
// encoding/json. A price of 0 is set.
func (p Price) IsZero() bool { return p.text == "" }

// Raw returns the text that the service sent: a string without its quotes, "" for null, any
// other value as JSON. If that text is not a number, the price is not set.
func (p Price) Raw() string { return p.text + p.raw }

// String returns the price in plain decimal notation, never in scientific
// notation, and "" if it is not set.
func (p Price) String() string {
	if !strings.ContainsAny(p.text, "eE") {
		return p.text
	}
	r := p.Rat()
	digits, _ := r.FloatPrec()
	return r.FloatString(digits)
}

// Rat returns the exact value as a new number, nil if the price is not set.
func (p Price) Rat() *big.Rat {
	r, _ := new(big.Rat).SetString(p.text)
	return r
}

// Float64 returns the nearest float64, 0 if the price is not set.
func (p Price) Float64() float64 {
	f, _ := strconv.ParseFloat(p.text, 64) // the result is 0 for an empty text
	return f
}

// Cmp compares by value: -1 if p is less than q, 0 if they are equal, +1 if p
// is greater. A price that is not set is less than any other.
func (p Price) Cmp(q Price) int {
	switch {
	case p.IsZero() && q.IsZero():
		return 0
	case p.IsZero():
		return -1
	case q.IsZero():
		return 1
	}
	return p.Rat().Cmp(q.Rat())
}

// MarshalJSON returns the price as a number, with the same digits as it was read. A price that
// is not set encodes as null. But if it was read from a value that is not a number, it encodes
// as a string with the text of that value.
func (p Price) MarshalJSON() ([]byte, error) {
	switch {
	case !p.IsZero():
		return []byte(p.text), nil
	case p.raw != "":
		return json.Marshal(p.raw)
	default:
		return []byte("null"), nil
	}
}

// UnmarshalJSON reads any JSON value. It never fails.
func (p *Price) UnmarshalJSON(b []byte) error {
	text := jsonText(string(b))
	if isNumber(text) {
		*p = Price{text: text}
	} else {
		*p = Price{raw: text}
	}
	return nil
}

// isNumber reports whether text is a number as JSON writes it. A text or an exponent that is
// too large to calculate with does not count: for example, 1e999999999.
func isNumber(text string) bool {
	const maxText, maxExponent = 1024, 400
	if _, exponent, scientific := strings.Cut(strings.ToLower(text), "e"); scientific {
		if n, err := strconv.Atoi(exponent); err != nil || n < -maxExponent || n > maxExponent {
			return false
		}
	}
	if len(text) > maxText {
		return false
	}
	_, err := strconv.ParseFloat(text, 64) // fails if the number is too large for a float64
	return err == nil && number.MatchString(text)
}

var number = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
