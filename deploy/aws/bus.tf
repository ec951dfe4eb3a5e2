# The bus, and a rule for each standard queue that names what it hears.
resource "aws_cloudwatch_event_bus" "events" {
  name = var.name
  tags = var.tags
}

locals {
  ruled = { for key, queue in var.queues : key => queue if length(queue.detail_types) > 0 && !queue.fifo }
}

resource "aws_cloudwatch_event_rule" "queue" {
  for_each       = local.ruled
  name           = "${var.name}-${each.key}"
  event_bus_name = aws_cloudwatch_event_bus.events.name
  event_pattern  = jsonencode({ "detail-type" = each.value.detail_types })
  tags           = var.tags
}

resource "aws_cloudwatch_event_target" "queue" {
  for_each       = local.ruled
  rule           = aws_cloudwatch_event_rule.queue[each.key].name
  event_bus_name = aws_cloudwatch_event_bus.events.name
  arn            = aws_sqs_queue.events[each.key].arn
  # What the bus could not put into the queue in a day is not lost either.
  dead_letter_config {
    arn = aws_sqs_queue.dead[each.key].arn
  }
  retry_policy {
    maximum_event_age_in_seconds = 86400
    maximum_retry_attempts       = 185
  }
}

data "aws_iam_policy_document" "bus_to_queue" {
  for_each = local.ruled
  statement {
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.events[each.key].arn, aws_sqs_queue.dead[each.key].arn]
    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [aws_cloudwatch_event_rule.queue[each.key].arn]
    }
  }
}

resource "aws_sqs_queue_policy" "events" {
  for_each  = local.ruled
  queue_url = aws_sqs_queue.events[each.key].id
  policy    = data.aws_iam_policy_document.bus_to_queue[each.key].json
}

resource "aws_sqs_queue_policy" "dead" {
  for_each  = local.ruled
  queue_url = aws_sqs_queue.dead[each.key].id
  policy    = data.aws_iam_policy_document.bus_to_queue[each.key].json
}
