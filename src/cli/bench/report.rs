//! Prints measurements as a table or as JSON.

use super::super::machine::Machine;
use super::stats::Ratio;
use super::{Results, Row};
use serde_json::{Value, json};

/// Returns the table, with the machine's limits below it.
pub fn table(results: &Results) -> String {
    let columns = columns(results);
    let widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let cells = column.cells.iter().map(|cell| cell.chars().count());
            cells.max().unwrap_or(0).max(column.head.chars().count())
        })
        .collect();
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells = columns.iter().zip(&widths).map(|(column, &width)| match column.left {
            true => format!("{:<width$}", cell(column)),
            false => format!("{:>width$}", cell(column)),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    let mut text = line(&|column| column.head.clone());
    for at in 0..results.rows.len() {
        text.push_str(&line(&|column| column.cells[at].clone()));
    }
    for machine in &results.machines {
        text.push_str(&machine_text(machine));
    }
    if results.rows.iter().any(exceeds_roofline) {
        text.push_str("faster than the cached limits: `--roofline=fresh` measures them again\n");
    }
    text
}

/// A column of the table: a cell for each row.
struct Column {
    head: String,
    left: bool,
    cells: Vec<String>,
}

fn columns(results: &Results) -> Vec<Column> {
    let rows = &results.rows;
    let column = |head: &str, left: bool, cell: &dyn Fn(&Row) -> String| Column {
        head: head.to_string(),
        left,
        cells: rows.iter().map(cell).collect(),
    };
    let mut columns = vec![column("kernel", true, &|row| row.kernel.clone())];
    if results.has_kernels_of_several_files() {
        columns.push(column("file", true, &|row| row.file.clone()));
    }
    columns.push(column("schedule", true, &|row| row.schedule.clone()));
    if let Some(sweep) = &results.sweep {
        let value = |row: &Row| row.point.clone().unwrap_or_default();
        columns.push(column(&sweep.name, false, &value));
    }
    columns.push(column("median", false, &|row| time_text(row.times.median)));
    columns.push(column("minimum", false, &|row| time_text(row.times.min)));
    let gflops = |row: &Row| format!("{:.2}", row.work.gflops(row.times.median));
    columns.push(column("GFLOP/s", false, &gflops));
    let gbs = |row: &Row| format!("{:.2}", row.work.gbs(row.times.median));
    columns.push(column("GB/s", false, &gbs));
    if rows.iter().any(|row| row.roofline.is_some()) {
        let peak = |row: &Row| part_of_peak(row).map_or("-".to_string(), percent);
        columns.push(column("of peak", false, &peak));
        let roofline = |row: &Row| part_of_roof(row).map_or("-".to_string(), percent);
        columns.push(column("of roofline", false, &roofline));
        let limit = |row: &Row| {
            row.roofline.as_ref().map_or("-", |roofline| &roofline.limit_name).to_string()
        };
        columns.push(column("which is", true, &limit));
    }
    if rows.iter().any(|row| row.beside.is_some()) {
        let beside = |row: &Row| match &row.beside {
            Some((_, ratio)) => {
                let (low, high) = (percent(ratio.low), percent(ratio.high));
                format!("{} [{low}, {high}]", percent(ratio.value))
            }
            None => "-".to_string(),
        };
        columns.push(column("of limit, interleaved", true, &beside));
    }
    if rows.iter().any(|row| row.speedup.is_some()) {
        let speedup = |row: &Row| match &row.speedup {
            Some(ratio) => {
                format!("{:.3}x [{:.3}, {:.3}]", ratio.value, ratio.low, ratio.high)
            }
            None => "1x".to_string(),
        };
        columns.push(column("speed", true, &speedup));
    }
    columns
}

pub fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn part_of_peak(row: &Row) -> Option<f64> {
    let peak = row.roofline.as_ref()?.peak?;
    Some(row.work.gflops(row.times.median) / peak)
}

fn part_of_roof(row: &Row) -> Option<f64> {
    Some(row.roofline.as_ref()?.seconds / row.times.median)
}

/// Whether a kernel is more than 10 % faster than its limit, so that the measurement of the limit
/// was disturbed; the clock frequency explains smaller differences.
fn exceeds_roofline(row: &Row) -> bool {
    part_of_roof(row).is_some_and(|part| part > 1.1)
}

fn machine_text(machine: &Machine) -> String {
    let threads = match machine.threads {
        1 => "1 thread".to_string(),
        count => format!("{count} threads"),
    };
    let levels = machine.levels.iter().map(|level| {
        let (name, read, triad) = (&level.name, level.read, level.triad);
        format!("{name} {read:.0}/{triad:.0}")
    });
    format!(
        "limits of {threads} with {} on {}: {:.1} GFLOP/s float32, {:.1} float64, {:.1} int8; GB/s \
         read/triad: {}\n",
        machine.isa.name(),
        machine.cpu,
        machine.peak_f32,
        machine.peak_f64,
        machine.peak_i8,
        levels.collect::<Vec<_>>().join(", ")
    )
}

pub fn time_text(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.1} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.3} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

/// Returns all measurements as JSON.
pub fn json(results: &Results) -> String {
    let machines = serde_json::to_value(&results.machines).expect("plain data");
    let rows: Vec<Value> = results.rows.iter().map(|row| row_json(results, row)).collect();
    let all = json!({
        "tec": env!("CARGO_PKG_VERSION"),
        "threads": results.threads,
        "sweep": results.sweep.as_ref().map(|sweep| {
            json!({ "name": sweep.name, "values": sweep.values })
        }),
        "machines": machines,
        "results": rows,
    });
    serde_json::to_string_pretty(&all).expect("plain data") + "\n"
}

fn row_json(results: &Results, row: &Row) -> Value {
    let (times, work) = (&row.times, &row.work);
    let roofline = row.roofline.as_ref().map(|roofline| {
        json!({
            "limit": roofline.limit_name,
            "bound_ns": roofline.seconds * 1e9,
            "level": roofline.level,
            "bandwidth_gbs": roofline.bandwidth,
            "peak_gflops": roofline.peak,
            "of_peak": part_of_peak(row),
            "of_roofline": part_of_roof(row),
        })
    });
    let beside = row.beside.as_ref().map(|(rate, ratio)| {
        json!({
            "limit": row.roofline.as_ref().map(|roofline| &roofline.limit_name),
            "rate": rate,
            "ratio": ratio_json(ratio),
        })
    });
    json!({
        "kernel": row.kernel,
        "file": row.file,
        "schedule": row.schedule,
        "target": row.target,
        "threads": results.threads,
        "point": row.point,
        "median_ns": times.median * 1e9,
        "min_ns": times.min * 1e9,
        "q1_ns": times.q1 * 1e9,
        "q3_ns": times.q3 * 1e9,
        "rounds": row.rounds,
        "calls": row.calls,
        "flops": work.flops,
        "bytes": work.bytes,
        "gflops": work.gflops(times.median),
        "gbs": work.gbs(times.median),
        "roofline": roofline,
        "beside": beside,
        "speedup": row.speedup.as_ref().map(ratio_json),
    })
}

fn ratio_json(ratio: &Ratio) -> Value {
    json!({ "value": ratio.value, "low": ratio.low, "high": ratio.high })
}
