package metrics

import (
	"context"
	"os"
	"runtime"
	rtmetrics "runtime/metrics"

	"github.com/shirou/gopsutil/v4/process"
)

// own returns the samples of the process and of the Go runtime. What the operating system does not
// tell is left out.
func own(ctx context.Context) []Sample { return append(ofRuntime(), ofProcess(ctx)...) }

func ofRuntime() []Sample {
	rows := []struct {
		metric *Metric
		name   string // of package runtime/metrics
	}{
		{goAllocated, "/gc/heap/allocs:bytes"}, {goCollections, "/gc/cycles/total:gc-cycles"}, {goHeap, "/memory/classes/heap/objects:bytes"},
		{goRoutines, "/sched/goroutines:goroutines"}, {goSystem, "/memory/classes/total:bytes"},
	}
	values := make([]rtmetrics.Sample, len(rows))
	for i, r := range rows {
		values[i].Name = r.name
	}
	rtmetrics.Read(values)
	list := []Sample{goInfo.Is(1, runtime.Version())}
	for i, v := range values {
		if v.Value.Kind() == rtmetrics.KindUint64 { // otherwise a later Go has it no more
			list = append(list, rows[i].metric.Is(float64(v.Value.Uint64())))
		}
	}
	return list
}

func ofProcess(ctx context.Context) (list []Sample) {
	p, err := process.NewProcessWithContext(ctx, int32(os.Getpid()))
	if err != nil {
		return nil
	}
	if t, err := p.TimesWithContext(ctx); err == nil {
		list = append(list, processCPU.Is(t.User+t.System))
	}
	if m, err := p.MemoryInfoWithContext(ctx); err == nil {
		list = append(list, processResident.Is(float64(m.RSS)), processVirtual.Is(float64(m.VMS)))
	}
	if n, err := p.NumFDsWithContext(ctx); err == nil {
		list = append(list, processFDs.Is(float64(n)))
	}
	if n, err := p.NumThreadsWithContext(ctx); err == nil {
		list = append(list, goThreads.Is(float64(n)))
	}
	if ms, err := p.CreateTimeWithContext(ctx); err == nil {
		list = append(list, processStart.Is(float64(ms)/1e3))
	}
	limits, err := p.RlimitWithContext(ctx)
	for _, l := range limits {
		if err == nil && l.Resource == process.RLIMIT_NOFILE {
			list = append(list, processFDLimit.Is(float64(l.Soft)))
		}
	}
	return list
}
