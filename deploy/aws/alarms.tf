# Alarms on age and count: a queue that stops in silence is what they are for.
locals {
  alarm = var.alarm_topic == "" ? [] : [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "age" {
  for_each            = var.queues
  alarm_name          = "${var.name}-${each.key}-age"
  alarm_description   = "The oldest message of ${each.key} is older than ${var.age_max_seconds} s: its consumer is away, too slow, or stopped by one message."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = aws_sqs_queue.events[each.key].name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = var.age_max_seconds
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags
}

# Behind a relay process. Every relay of a store tells the same of it, so the highest is taken; and no relay tells nothing.
resource "aws_cloudwatch_metric_alarm" "relay_behind" {
  count               = var.relay_metrics == null ? 0 : 1
  alarm_name          = "${var.name}-relay-behind"
  alarm_description   = "The oldest event in the outbox is older than ${var.age_max_seconds} s, or no relay says how old it is: events are late, none is lost. `postrider status` says what holds them up."
  namespace           = var.relay_metrics.namespace
  metric_name         = "postrider_oldest_pending_age_seconds"
  dimensions          = var.relay_metrics.dimensions
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = var.age_max_seconds
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "dead" {
  for_each            = var.queues
  alarm_name          = "${var.name}-${each.key}-dead"
  alarm_description   = "${each.key} has dead letters: somebody has to look, and to send them again once the cause is gone."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.dead[each.key].name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags
}

resource "aws_cloudwatch_metric_alarm" "throttled" {
  for_each = {
    outbox = { TableName = aws_dynamodb_table.outbox.name }
    # The index has the hottest keys, one for each partition, and its own count.
    index = { TableName = aws_dynamodb_table.outbox.name, GlobalSecondaryIndexName = "postrider-pending" }
    store = { TableName = aws_dynamodb_table.store.name }
  }
  alarm_name          = "${var.name}-${each.key}-throttled"
  alarm_description   = "DynamoDB throttles ${each.key == "index" ? "the outbox's index" : "the ${each.key} table"}: events wait, none is lost. Raise its limits, or spread the keys."
  evaluation_periods  = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.alarm
  ok_actions          = local.alarm
  tags                = var.tags

  metric_query {
    id          = "both"
    expression  = "FILL(reads, 0) + FILL(writes, 0)"
    label       = "throttled reads and writes"
    return_data = true
  }
  dynamic "metric_query" {
    for_each = { reads = "ReadThrottleEvents", writes = "WriteThrottleEvents" }
    content {
      id = metric_query.key
      metric {
        namespace   = "AWS/DynamoDB"
        metric_name = metric_query.value
        dimensions  = each.value
        stat        = "Sum"
        period      = 60
      }
    }
  }
}
