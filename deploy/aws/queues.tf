# A queue for each listener, with its dead letters. What a handler gave up is kept as long as SQS can.
locals {
  suffix = { for key, queue in var.queues : key => queue.fifo ? ".fifo" : "" }
}

resource "aws_sqs_queue" "dead" {
  for_each                  = var.queues
  name                      = "${var.name}-${each.key}-dead${local.suffix[each.key]}"
  fifo_queue                = each.value.fifo
  message_retention_seconds = 14 * 86400
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue" "events" {
  for_each                   = var.queues
  name                       = "${var.name}-${each.key}${local.suffix[each.key]}"
  fifo_queue                 = each.value.fifo
  visibility_timeout_seconds = each.value.visibility_seconds
  message_retention_seconds  = var.redeliver_days * 86400
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = true
  # The relay gives each message its event's id: the body must not decide what is a duplicate.
  content_based_deduplication = each.value.fifo ? false : null
  deduplication_scope         = each.value.fifo ? "messageGroup" : null
  fifo_throughput_limit       = each.value.fifo ? "perMessageGroupId" : null
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead[each.key].arn
    maxReceiveCount     = var.receives_max
  })
  tags = var.tags
}

resource "aws_sqs_queue_redrive_allow_policy" "dead" {
  for_each  = var.queues
  queue_url = aws_sqs_queue.dead[each.key].id
  redrive_allow_policy = jsonencode({
    redrivePermission = "byQueue"
    sourceQueueArns   = [aws_sqs_queue.events[each.key].arn]
  })
}
