package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	day     = 24 * time.Hour
	maxDays = math.MaxInt64 / day // 292 years
)

// days is the value of a flag that is a duration, and may also be in days.
type days time.Duration

func (d *days) String() string {
	if *d == 0 {
		return "" // the help says what the default means
	}
	return time.Duration(*d).String()
}

// Type is the name of the value in the help.
func (*days) Type() string { return "duration" }

// Set reads a duration.
func (d *days) Set(text string) error {
	parsed, err := parseDays(text)
	if err != nil {
		return err
	}
	*d = days(parsed)
	return nil
}

var errDays = errors.New("must be a duration, such as 90s, 8h or 2d, and at most " + strconv.Itoa(int(maxDays)) + "d")

// parseDays reads a duration that may also be in days, such as 90d.
func parseDays(text string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 32)
		if err != nil || days > uint64(maxDays) {
			return 0, errDays
		}
		return time.Duration(days) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errDays
	}
	return d, nil
}
