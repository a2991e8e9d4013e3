package anabranch;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.catalyst.expressions.GenericRowWithSchema;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.mutable.ArrayDeque;
import scala.collection.mutable.Queue;

/**
 * Puts operators of the service into the progress of their query, as `stateOperators` and as
 * `observedMetrics`.
 *
 * <p>Spark fills that array from its own physical operators only. Each progress goes through a
 * queue of the query before anybody sees it: `lastProgress`, listeners, the UI, the event log. So
 * that queue is replaced, once for each run of a query, by one that completes what is added.
 */
public class StateProgress {
    /**
     * What an operator did in a batch: its name in progress, then `field=number`, by spaces.
     * `observed`: the name of the same numbers in `observedMetrics`, or "" for none.
     */
    public void report(
            SparkSession session, String queryId, String operator, long batch, String report,
            String observed) {
        Map running = session.sharedState().activeStreamingQueries();
        Object query = running.get(UUID.fromString(queryId));
        if (query != null) {
            OperatorReport added = new OperatorReport(batch, report, observed);
            added.shown(batch); // what does not work is found out here, not in the query's thread
            ProgressQueue.of(query).put(operator, added);
        }
    }
}

/** The progress of a query, completed. */
class ProgressQueue extends Queue {
    private final Map reports = new LinkedHashMap();

    ProgressQueue() {
        super(16);
    }

    static ProgressQueue of(Object query) {
        try {
            Object reporter =
                query.getClass().getMethod("progressReporter", new Class[0]).invoke(query, new Object[0]);
            Field field = reporter.getClass().getDeclaredField("progressBuffer");
            field.setAccessible(true);
            synchronized (reporter) {
                Queue before = (Queue) field.get(reporter);
                if (before instanceof ProgressQueue) {
                    return (ProgressQueue) before;
                }
                ProgressQueue queue = new ProgressQueue();
                synchronized (before) {
                    for (int at = 0; at < before.length(); at++) {
                        queue.addOne(before.apply(at));
                    }
                    field.set(reporter, queue);
                }
                return queue;
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("This release of Spark keeps progress elsewhere", error);
        }
    }

    private static void set(StreamingQueryProgress progress, String name, Object value)
            throws ReflectiveOperationException {
        Field field = StreamingQueryProgress.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(progress, value);
    }

    void put(String operator, OperatorReport report) {
        synchronized (reports) {
            reports.put(operator, report);
        }
    }

    public ArrayDeque addOne(Object added) {
        synchronized (reports) {
            try {
                if (!reports.isEmpty()) {
                    complete((StreamingQueryProgress) added);
                }
            } catch (RuntimeException error) {
                reports.clear(); // the query goes on without
            }
        }
        return super.addOne(added);
    }

    private void complete(StreamingQueryProgress progress) {
        StateOperatorProgress[] before = progress.stateOperators();
        List all = new ArrayList(java.util.Arrays.asList(before));
        Map metrics = new HashMap(progress.observedMetrics());
        for (Object each : reports.values()) {
            OperatorReport report = (OperatorReport) each;
            all.add(report.shown(progress.batchId()));
            report.observe(progress.batchId(), metrics);
        }
        try {
            set(progress, "stateOperators", all.toArray(new StateOperatorProgress[0]));
            if (metrics.size() > progress.observedMetrics().size()) {
                set(progress, "observedMetrics", metrics);
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("This release of Spark has other progress", error);
        }
    }
}

/** What an operator did in a batch. */
class OperatorReport {
    private final long batch;
    private final String name;
    private final String observed;
    private final Map fields = new LinkedHashMap();

    OperatorReport(long batch, String report, String observed) {
        String[] parts = report.split(" ");
        this.batch = batch;
        this.observed = observed;
        this.name = parts[0];
        for (int at = 1; at < parts.length; at++) {
            int end = parts[at].indexOf('=');
            fields.put(parts[at].substring(0, end), Long.valueOf(parts[at].substring(end + 1)));
        }
    }

    /** In the progress of a batch; in that of a trigger without a batch, only what state is. */
    StateOperatorProgress shown(long shownBatch) {
        boolean ran = shownBatch == batch;
        Map rest = new LinkedHashMap(fields);
        Object[] values = {
            name,
            take(rest, "numRowsTotal", true),
            take(rest, "numRowsUpdated", ran),
            take(rest, "allUpdatesTimeMs", ran),
            take(rest, "numRowsRemoved", ran),
            take(rest, "allRemovalsTimeMs", ran),
            take(rest, "commitTimeMs", ran),
            take(rest, "memoryUsedBytes", true),
            take(rest, "numRowsDroppedByWatermark", ran),
            take(rest, "numShufflePartitions", true),
            take(rest, "numStateStoreInstances", true),
            ran ? rest : new LinkedHashMap(),
            scala.collection.immutable.Set$.MODULE$.empty(),
        };
        Constructor made = StateOperatorProgress.class.getDeclaredConstructors()[0];
        Object[] wanted = java.util.Arrays.copyOf(values, made.getParameterCount());
        try {
            return (StateOperatorProgress) made.newInstance(wanted);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("This release of Spark has other progress", error);
        }
    }

    /** As `df.observe` would show it, in the progress of the batch itself. */
    void observe(long shownBatch, Map metrics) {
        if (observed.isEmpty() || shownBatch != batch) {
            return;
        }
        StructType schema = new StructType();
        for (Object field : fields.keySet()) {
            schema = schema.add((String) field, DataTypes.LongType, false);
        }
        metrics.put(observed, new GenericRowWithSchema(fields.values().toArray(), schema));
    }

    private static Long take(Map rest, String field, boolean isShown) {
        Long value = (Long) rest.remove(field);
        return value == null || !isShown ? Long.valueOf(0) : value;
    }
}
