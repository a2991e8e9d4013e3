package anabranch;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.streaming.DataStreamReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A source that never has rows, only offsets: they move on when a batch should run without rows.
 *
 * <p>Compiled in the driver (jvm.py) by the compiler that Spark brings for its own generated code.
 * Executors never load it: it has no partitions.
 */
public class TickSource implements TableProvider {
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        throw new UnsupportedOperationException("The schema is that of the operator's input.");
    }

    public boolean supportsExternalMetadata() {
        return true;
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
        return new TickTable(schema, options.get("timeMode"));
    }

    /** Ticks as a DataFrame. It is resolved here, where the class can be found by its name. */
    public Dataset open(SparkSession session, StructType schema, String timeMode) {
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(getClass().getClassLoader());
        try {
            DataStreamReader reader = session.readStream().format(getClass().getName());
            Dataset ticks = (Dataset) reader.schema(schema).option("timeMode", timeMode).load();
            return Dataset.ofRows(session, ticks.queryExecution().analyzed());
        } finally {
            thread.setContextClassLoader(before);
        }
    }
}

/** Each DataFrame has one of its own: Spark takes equal tables for one source. */
class TickTable implements SupportsRead {
    private final StructType schema;
    private final String timeMode;

    TickTable(StructType schema, String timeMode) {
        this.schema = schema;
        this.timeMode = timeMode;
    }

    public String name() {
        return TickStream.NAME;
    }

    public StructType schema() {
        return schema;
    }

    public Set capabilities() {
        return Collections.singleton(TableCapability.MICRO_BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new TickScan(schema, timeMode);
    }

    public String toString() {
        return TickStream.NAME;
    }
}

/** Makes the stream of a query that starts. */
class TickScan implements ScanBuilder, Scan {
    private final StructType schema;
    private final String timeMode;

    TickScan(StructType schema, String timeMode) {
        this.schema = schema;
        this.timeMode = timeMode;
    }

    public Scan build() {
        return this;
    }

    public StructType readSchema() {
        return schema;
    }

    public String description() {
        return TickStream.NAME;
    }

    /** A mark in the checkpoint says which source this is: one without a tick has no offset. */
    public MicroBatchStream toMicroBatchStream(String metadataPath) {
        Path mark = new Path(metadataPath, TickStream.NAME);
        Configuration settings = SparkContext.getOrCreate().hadoopConfiguration();
        try {
            FileSystem files = mark.getFileSystem(settings);
            if (!files.exists(mark)) {
                files.create(mark).close();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new TickStream("processingtime".equals(timeMode));
    }
}

/** The ticks of one run of a query; all calls that matter come from the query's own thread. */
class TickStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    static final String NAME = "anabranch_ticks";

    private final boolean isProcessingTime;
    private boolean mustEnd = false;
    private Boolean runsWithoutRows = null;

    TickStream(boolean isProcessingTime) {
        this.isProcessingTime = isProcessingTime;
    }

    public Offset initialOffset() {
        return new TickOffset(0);
    }

    public Offset deserializeOffset(String json) {
        return TickOffset.parse(json);
    }

    /**
     * One more than `start` if a batch should run without rows. Before the first tick there is
     * nothing: Spark would take a first offset for new rows, and run a batch.
     */
    public Offset latestOffset(Offset start, ReadLimit limit) {
        TickOffset tick = TickOffset.parse(start.json());
        if (isDue()) {
            return tick.next();
        }
        return tick.isFirst() ? null : start;
    }

    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark says where to start.");
    }

    /**
     * Ticks of event time follow from rows that were there at the start, so they end; those of
     * processing time never do.
     */
    public void prepareForTriggerAvailableNow() {
        mustEnd = true;
    }

    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        return new InputPartition[0];
    }

    public PartitionReaderFactory createReaderFactory() {
        return null; // there are no partitions
    }

    public void commit(Offset end) {}

    public void stop() {}

    public String toString() {
        return NAME;
    }

    /**
     * Spark's own rule: always for processing time, else when the watermark has moved since the
     * last batch; never where the session has switched such batches off.
     */
    private boolean isDue() {
        Object query = RunningQuery.here();
        if (query == null) {
            return false;
        }
        if (runsWithoutRows == null) { // once, as Spark does
            Object session = RunningQuery.get(query, "sparkSessionForStream");
            Object conf = RunningQuery.get(RunningQuery.get(session, "sessionState"), "conf");
            runsWithoutRows = (Boolean) RunningQuery.get(conf, "streamingNoDataMicroBatchesEnabled");
        }
        Object last = RunningQuery.get(query, "lastExecution");
        if (!runsWithoutRows.booleanValue() || last == null || (mustEnd && isProcessingTime)) {
            return false;
        }
        if (isProcessingTime) {
            return true;
        }
        Object tracker = RunningQuery.get(query, "watermarkTracker");
        Object metadata = RunningQuery.get(last, "offsetSeqMetadata");
        return RunningQuery.number(tracker, "currentWatermark")
            > RunningQuery.number(metadata, "batchWatermarkMs");
    }
}

/** The text is that of earlier releases: their checkpoints go on. */
class TickOffset extends Offset {
    private static final String BEFORE = "{\"tick\": ";
    private final long tick;

    TickOffset(long tick) {
        this.tick = tick;
    }

    static TickOffset parse(String json) {
        String digits = json.replaceAll("[^0-9]", "");
        if (!json.startsWith(BEFORE) || digits.isEmpty()) {
            throw new IllegalArgumentException(
                "The checkpoint has " + json + " where the ticks of Anabranch should be. Read the "
                    + "same sources in the same order as before.");
        }
        return new TickOffset(Long.parseLong(digits));
    }

    boolean isFirst() {
        return tick == 0;
    }

    TickOffset next() {
        return new TickOffset(tick + 1);
    }

    public String json() {
        return BEFORE + tick + "}";
    }
}

/** The query whose thread this is; by name, since Spark's internals move between packages. */
class RunningQuery {
    static Object here() {
        SparkContext context = SparkContext.getOrCreate();
        String id = context.getLocalProperty("sql.streaming.queryId");
        Object session = org.apache.spark.sql.SparkSession.active();
        Map running = (Map) get(get(session, "sharedState"), "activeStreamingQueries");
        return id == null ? null : running.get(UUID.fromString(id));
    }

    static Object get(Object from, String name) {
        try {
            return from.getClass().getMethod(name, new Class[0]).invoke(from, new Object[0]);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(
                "This release of Spark is not one that Anabranch knows: no " + name + " in "
                    + from.getClass().getName() + ". Use PySpark 4.1 to 4.3.", error);
        }
    }

    static long number(Object from, String name) {
        return ((Number) get(from, name)).longValue();
    }
}
