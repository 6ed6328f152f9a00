// Answers strategic merge patches as Kubernetes does. Each line of input is {"original": …, "patch": …}; each line of
// output is {"result": …}, or {"error": "…"} where Kubernetes refuses or panics.
//
// With "encode", each line of input is a JSON value, and each line of output the same as Kubernetes writes it once it has read
// it, as the patch of an object does. Of a value that comes out otherwise when it is read again, what comes out in the end.
//
// With "bench N" it times N rounds over the input instead, and prints nanoseconds per patch.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

type question struct {
	Original json.RawMessage `json:"original"`
	Patch    json.RawMessage `json:"patch"`
}

type answer struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func merge(q question) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Error: fmt.Sprint("panic: ", p)}
		}
	}()
	result, err := strategicpatch.StrategicMergePatch(q.Original, q.Patch, corev1.PodTemplateSpec{})
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Result: result}
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<26)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	defer out.Flush()
	if len(os.Args) == 3 && os.Args[1] == "bench" {
		bench(in)
		return
	}
	answered := answerMerge
	if len(os.Args) == 2 && os.Args[1] == "encode" {
		answered = encode
	}
	for in.Scan() {
		line, err := answered(in.Bytes())
		if err != nil {
			fmt.Fprintln(os.Stderr, "no answer:", err)
			os.Exit(1)
		}
		out.Write(line)
		out.WriteByte('\n')
		if out.Buffered() > 1<<19 {
			out.Flush()
		}
	}
}

func answerMerge(line []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return nil, err
	}
	return json.Marshal(merge(q))
}

func encode(line []byte) ([]byte, error) {
	for {
		var value any
		if err := kjson.Unmarshal(line, &value); err != nil {
			return nil, err
		}
		again, err := kjson.Marshal(value)
		if err != nil || bytes.Equal(again, line) {
			return again, err
		}
		line = again
	}
}

// A core that has slept is slow at first. The benchmark gives its own code as long.
const warmUp = 300 * time.Millisecond

func bench(in *bufio.Scanner) {
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil || rounds < 1 {
		fmt.Fprintln(os.Stderr, "bench needs a number of rounds")
		os.Exit(1)
	}
	for in.Scan() {
		var q question
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, "not a question:", err)
			os.Exit(1)
		}
		for woken := time.Now(); time.Since(woken) < warmUp; {
			merge(q)
		}
		begun := time.Now()
		for range rounds {
			merge(q)
		}
		fmt.Println(time.Since(begun).Nanoseconds() / int64(rounds))
	}
}
